package hostdevice

import (
	"testing"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// FuzzParseHolding makes sure that what is read of a file can be acted on, and is read again as it was written.
func FuzzParseHolding(f *testing.F) {
	f.Add("network \"n\"\ncontainerID \"c\"\nifname \"eth0\"\nnetns \"/run/netns/x\"\nname \"nic0\"\nalias \"up link\\n\"\n" +
		"kind \"device\"\nparent \"0000:01:00.0\"\nmac \"02:00:00:00:00:01\"\nmtu 1500\nup true\n")
	f.Add("name \"\\xf4\"\nmtu x\nup")
	f.Add("name \"../x\"")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		h, ok := parseHolding([]byte(text))
		if !ok {
			return
		}
		if again, ok := parseHolding(h.text()); !ok || *again != *h {
			t.Errorf("%q: read as %+v, written and read again as %+v", text, h, again)
		}
	})
}

// FuzzParse makes sure that no configuration leads out of the directories of devices.
func FuzzParse(f *testing.F) {
	f.Add(`{"device":"nic0","hwaddr":"02:00:00:00:00:01"}`)
	f.Add(`{"kernelpath":"/sys/devices/../..","pciBusID":"../x"}`)
	f.Add(`{"runtimeConfig":{"deviceID":".."},"DPDKMODE":true}`)
	f.Fuzz(func(t *testing.T, text string) {
		o, err := conf.Parse([]byte(text))
		if err != nil {
			return
		}
		c, err := parse(&plugin.Request{Command: plugin.Add, Config: o})
		if err != nil {
			if plugin.AsError(err).Msg == "" {
				t.Errorf("an error without a message for %q", text)
			}
			return
		}
		if !c.isSet() || c.pci != "" && !isEntry(c.pci) || c.auxiliary != "" && !isEntry(c.auxiliary) {
			t.Errorf("%q gives %+v", text, c)
		}
	})
}
