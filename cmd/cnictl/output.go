package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/network"
)

// addJSONFlag gives a command the --json flag.
func addJSONFlag(cmd *cobra.Command) {
	cmd.Flags().Bool("json", false, "print JSON for machines, errors too, on standard output")
}

func wantsJSON(cmd *cobra.Command) bool {
	wanted, err := cmd.Flags().GetBool("json")
	return err == nil && wanted
}

// output prints a document with --json, and otherwise what people read.
func output(cmd *cobra.Command, document any, people func(io.Writer)) error {
	if wantsJSON(cmd) {
		return printJSON(cmd, document)
	}
	var text bytes.Buffer
	people(&text)
	return show(cmd, text.Bytes())
}

// show prints all of a command's output, or fails.
func show(cmd *cobra.Command, text []byte) error {
	if _, err := cmd.OutOrStdout().Write(text); err != nil {
		return fmt.Errorf("print what was done: %w", err)
	}
	return nil
}

func printJSON(cmd *cobra.Command, document any) error {
	text, err := asJSON(document)
	if err != nil {
		return err
	}
	return show(cmd, text)
}

func asJSON(document any) ([]byte, error) {
	text, err := json.MarshalIndent(document, "", "    ")
	return append(text, '\n'), err
}

// findings returns the error of a command that has printed its document, if there is one: with --json it is in there.
func findings(cmd *cobra.Command, errs []error) error {
	err := errors.Join(errs...)
	if err != nil && wantsJSON(cmd) {
		return commandError{exitFailed}
	}
	return err
}

// describe prints an attachment for people.
func describe(w io.Writer, name string, rt *libcni.RuntimeConf, r *types100.Result) {
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
		gateway := ""
		if ip.Gateway != nil {
			gateway = ", gateway " + ip.Gateway.String()
		}
		fmt.Fprintf(w, "  address       %s%s\n", ip.Address.String(), gateway)
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
	// The port maps that the plugins were given, from whatever they were made.
	var ports []network.Port
	if text, err := json.Marshal(rt.CapabilityArgs["portMappings"]); err == nil && json.Unmarshal(text, &ports) == nil {
		for _, p := range ports {
			fmt.Fprintf(w, "  published     %s\n", p)
		}
	}
}
