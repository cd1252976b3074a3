package tuning

import (
	"net"
	"path"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

// defaultDataDir is where files for DEL are kept, as by the reference plugin.
const defaultDataDir = "/run/cni/tuning"

// settings is what a call asks for.
type settings struct {
	sysctls    []setting
	attributes attributes
	dataDir    string
}

// setting is one sysctl.
type setting struct {
	key   sysctl.Key
	value string
}

// readSettings puts together what the configuration, CNI_ARGS, runtimeConfig
// and args.cni say, each overriding what came before.
func readSettings(r *plugin.Request) (*settings, error) {
	if dir := givenDataDir(r.Config); dir != "" && !path.IsAbs(dir) {
		return nil, plugin.ConfigError("give an absolute path, or leave it out for "+defaultDataDir, "key %q: %q is no absolute path", "dataDir", dir)
	}
	wanted, err := wantedAttributes(r)
	if err != nil {
		return nil, err
	}
	s := &settings{attributes: wanted, dataDir: dataDir(r.Config)}
	for _, o := range []*conf.Object{r.Config, args(r)} {
		list, err := readSysctls(o, r.IfName)
		if err != nil {
			return nil, err
		}
		s.setAll(list)
	}
	return s, r.Config.Err()
}

// wantedAttributes returns what the interface is to have.
func wantedAttributes(r *plugin.Request) (attributes, error) {
	wanted := readAttributes(r.Config)
	fromArgs, err := macFromCNIArgs(r.Args)
	if err != nil {
		return wanted, err
	}
	wanted.override(attributes{mac: fromArgs})
	wanted.override(attributes{mac: readMAC(r.Config.Object("runtimeConfig"))})
	asked := args(r)
	wanted.override(readAttributes(asked))
	off, zero := true, -1
	asked.Bool("promisc", &off)
	asked.Int("mtu", &zero)
	if !off {
		wanted.promisc = nil
	}
	if zero == 0 {
		wanted.mtu = nil
	}
	return wanted, nil
}

func args(r *plugin.Request) *conf.Object { return r.Config.Object("args").Object("cni") }

func macFromCNIArgs(text string) (net.HardwareAddr, error) {
	values, err := plugin.Arguments(text, "MAC")
	if err != nil || values["MAC"] == "" {
		return nil, err
	}
	mac, err := link.ParseMAC(values["MAC"])
	if err != nil {
		return nil, &types.Error{Code: types.ErrInvalidEnvironmentVariables, Msg: "CNI_ARGS: MAC: " + err.Error(), Details: "correct it where the container is started"}
	}
	return mac, nil
}

// setAll adds sysctls. One that is there already takes the new value.
func (s *settings) setAll(list []setting) {
	for _, n := range list {
		if at := find(s.sysctls, n.key); at >= 0 {
			s.sysctls[at] = n
			continue
		}
		s.sysctls = append(s.sysctls, n)
	}
}

func find(list []setting, key sysctl.Key) int {
	for i := range list {
		if list[i].key.Path() == key.Path() {
			return i
		}
	}
	return -1
}

// readSysctls reads the object "sysctl" in o. Two keys for the same sysctl are
// an error: which one is to win can't be told.
func readSysctls(o *conf.Object, ifName string) ([]setting, error) {
	var list []setting
	var texts []string
	o.Object("sysctl").StringMap(func(text, value string) {
		list = append(list, setting{value: value})
		texts = append(texts, text)
	})
	for i := range list {
		key, err := sysctl.ParseKey(texts[i])
		if err != nil {
			return nil, plugin.ConfigError("write it as net.ipv4.conf.IFNAME.arp_filter, or with slashes when names hold dots", "%s: %v", o.Path("sysctl"), err)
		}
		if ifName != "" { // STATUS asks for no interface
			key = key.ForInterface(ifName)
		}
		if same := find(list[:i], key); same >= 0 {
			return nil, plugin.ConfigError("keep one of them", "%s: duplicated sysctl keys are not allowed: %s and %s", o.Path("sysctl"), list[same].key, key)
		}
		list[i].key = key
	}
	return list, nil
}

// dataDir returns the directory of the files for DEL, the default one when
// what is configured can't be used.
func dataDir(c *conf.Object) string {
	if dir := givenDataDir(c); path.IsAbs(dir) {
		return path.Clean(dir)
	}
	return defaultDataDir
}

func givenDataDir(c *conf.Object) (dir string) {
	c.String("dataDir", &dir)
	return dir
}

// result returns the previous result with what was changed of the container's
// interface.
func (s *settings) result(r *plugin.Request) *types100.Result {
	result := r.PrevResult
	for _, f := range result.Interfaces {
		if f.Name != r.IfName || f.Sandbox == "" {
			continue
		}
		if s.attributes.mac != nil {
			f.Mac = s.attributes.mac.String()
		}
		if s.attributes.mtu != nil {
			f.Mtu = *s.attributes.mtu
		}
	}
	return result
}
