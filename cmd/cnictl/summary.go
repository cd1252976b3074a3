package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/network"
)

// describe prints an attachment for people.
func describe(w io.Writer, name string, rt *libcni.RuntimeConf, result types.Result) error {
	r, err := types100.NewResultFromResult(result)
	if err != nil {
		return fmt.Errorf("read the result of network %s: %w", name, err)
	}
	fmt.Fprintf(w, "attached %s to network %s as %s\n", rt.NetNS, name, rt.IfName)
	fmt.Fprintf(w, "  container id  %s\n", rt.ContainerID)
	for _, i := range r.Interfaces {
		where := "host"
		if i.Sandbox != "" {
			where = "container"
		}
		fmt.Fprintf(w, "  interface     %s (%s) %s\n", i.Name, where, i.Mac)
	}
	for _, ip := range r.IPs {
		fmt.Fprintf(w, "  address       %s%s\n", ip.Address.String(), gateway(ip))
	}
	for _, route := range r.Routes {
		via := ""
		if route.GW != nil {
			via = " via " + route.GW.String()
		}
		fmt.Fprintf(w, "  route         %s%s\n", route.Dst.String(), via)
	}
	for _, server := range r.DNS.Nameservers {
		fmt.Fprintf(w, "  name server   %s\n", server)
	}
	for _, p := range published(rt) {
		fmt.Fprintf(w, "  published     %s\n", p)
	}
	return nil
}

func gateway(ip *types100.IPConfig) string {
	if ip.Gateway == nil {
		return ""
	}
	return ", gateway " + ip.Gateway.String()
}

// published returns the port maps that the plugins were given, from whatever
// they were made.
func published(rt *libcni.RuntimeConf) []network.Port {
	text, err := json.Marshal(rt.CapabilityArgs["portMappings"])
	if err != nil {
		return nil
	}
	var ports []network.Port
	if json.Unmarshal(text, &ports) != nil {
		return nil
	}
	return ports
}
