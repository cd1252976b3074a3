package bench

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os/exec"

	"github.com/containernetworking/cni/libcni"
)

var netavarkPath = flag.String("netavark", "/usr/lib/podman/netavark", "netavark's program, which is measured too if it is there")

// netavark calls netavark as podman does: it is told the address.
func netavark(path string) func(s *subject, run starter, verb string, rt *libcni.RuntimeConf) error {
	return func(s *subject, run starter, verb string, rt *libcni.RuntimeConf) error {
		ports := rt.CapabilityArgs["portMappings"].([]object)
		port := ports[0]["hostPort"].(int)
		address := netip.MustParsePrefix(subnet).Addr().As4()
		number := port - measuredPort + 2
		address[2], address[3] = byte(number>>8), byte(number)
		options, err := json.Marshal(object{
			"container_id": rt.ContainerID, "container_name": rt.ContainerID[:12],
			"port_mappings": []object{{"container_port": 80, "host_ip": "", "host_port": port, "protocol": "tcp", "range": 1}},
			"networks":      object{networkName: object{"static_ips": []string{netip.AddrFrom4(address).String()}, "interface_name": "eth0"}},
			"network_info": object{networkName: object{"name": networkName, "id": fmt.Sprintf("%064x", 1), "driver": "bridge", "network_interface": "cni0",
				"subnets":      []object{{"subnet": subnet, "gateway": netip.MustParsePrefix(subnet).Addr().Next().String()}},
				"ipv6_enabled": false, "internal": false, "dns_enabled": false, "ipam_options": object{"driver": "host-local"}}},
		})
		if err != nil {
			return err
		}
		cmd := exec.Command(path, "--config", "/run/netavark", map[string]string{"ADD": "setup", "DEL": "teardown"}[verb], rt.NetNS)
		var out bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(options), &out, &out
		if err := run(cmd); err != nil {
			return fmt.Errorf("%s of netavark: %w: %s", verb, err, out.Bytes())
		}
		return nil
	}
}
