package tuning

import (
	"cmp"
	"path"
	"slices"
	"strconv"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

// settings is what a call asks for.
type settings struct {
	sysctls []setting
	values  values
}

// setting is one sysctl.
type setting struct {
	key   sysctl.Key
	value string
}

// readSettings puts together what the configuration, CNI_ARGS, runtimeConfig and args.cni say, each overriding what came before.
func readSettings(r *plugin.Request) (s settings, err error) {
	dir := ""
	r.Config.String("dataDir", &dir)
	if dir != "" && !path.IsAbs(dir) {
		return s, plugin.ConfigError("give an absolute path, or leave it out for "+defaultDataDir, "key %q: %q is no absolute path", "dataDir", dir)
	}
	if s.values, err = wantedValues(r); err != nil {
		return s, err
	}
	for _, o := range []*conf.Object{r.Config, args(r)} {
		own, err := readSysctls(o, r.IfName)
		if err != nil {
			return s, err
		}
		for _, n := range own {
			if i := find(s.sysctls, n.key); i >= 0 {
				s.sysctls[i] = n
			} else {
				s.sysctls = append(s.sysctls, n)
			}
		}
	}
	return s, r.Config.Err()
}

// wantedValues returns what the interface is to have. Promiscuous mode is only ever switched on, and an MTU of 0 is none.
func wantedValues(r *plugin.Request) (values, error) {
	wanted := readValues(r.Config)
	fromArgs, err := macFromCNIArgs(r.Args)
	wanted.override(values{mac: fromArgs})
	wanted.override(values{mac: readMAC(r.Config.Object("runtimeConfig"))})
	wanted.override(readValues(args(r)))
	if wanted[promisc] == "false" {
		wanted[promisc] = ""
	}
	if wanted[mtu] == "0" {
		wanted[mtu] = ""
	}
	return wanted, err
}

func args(r *plugin.Request) *conf.Object { return r.Config.Object("args").Object("cni") }

func macFromCNIArgs(text string) (string, error) {
	given, err := plugin.Arguments(text, "MAC")
	if err != nil || given["MAC"] == "" {
		return "", err
	}
	address, err := link.ParseMAC(given["MAC"])
	if err != nil {
		return "", types.NewError(types.ErrInvalidEnvironmentVariables, "CNI_ARGS: MAC: "+err.Error(), "correct it where the container is started")
	}
	return address.String(), nil
}

// find returns where a sysctl is in a list, -1 if it is not there.
func find(list []setting, key sysctl.Key) int {
	return slices.IndexFunc(list, func(s setting) bool { return s.key.Path() == key.Path() })
}

// readSysctls reads the object "sysctl" in o. Two keys for the same sysctl are an error: which one is to win can't be told.
func readSysctls(o *conf.Object, ifName string) (list []setting, err error) {
	o.Object("sysctl").StringMap(func(text, value string) {
		key, invalid := sysctl.ParseKey(text)
		if ifName != "" { // STATUS asks for no interface
			key = key.ForInterface(ifName)
		}
		same := find(list, key)
		switch {
		case err != nil:
		case invalid != nil:
			err = plugin.ConfigError("write it as net.ipv4.conf.IFNAME.arp_filter, or with slashes when names hold dots", "%s: %v", o.Path("sysctl"), invalid)
		case same >= 0:
			err = plugin.ConfigError("keep one of them", "%s: duplicated sysctl keys are not allowed: %s and %s", o.Path("sysctl"), list[same].key, key)
		}
		list = append(list, setting{key, value})
	})
	return list, err
}

// dataDir returns the directory of the files for DEL, the reference plugin's when what is configured can't be used.
func dataDir(c *conf.Object) string {
	dir := ""
	c.String("dataDir", &dir)
	if !path.IsAbs(dir) {
		return defaultDataDir
	}
	return path.Clean(dir)
}

const defaultDataDir = "/run/cni/tuning"

// result returns the previous result with what was changed of the container's interface.
func (s settings) result(r *plugin.Request) *types100.Result {
	result := r.PrevResult
	for _, f := range result.Interfaces {
		if f.Name == r.IfName && f.Sandbox != "" {
			f.Mac = cmp.Or(s.values[mac], f.Mac)
			if n, err := strconv.Atoi(s.values[mtu]); err == nil {
				f.Mtu = n
			}
		}
	}
	return result
}
