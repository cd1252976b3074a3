// Command flanneld is flannel's daemon, made of flannel's own packages: its own program has all backends, of which one needs a module that
// can't be had everywhere.
//
//	flanneld ETCD-URL INTERFACE
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"sync"

	"github.com/flannel-io/flannel/pkg/backend"
	_ "github.com/flannel-io/flannel/pkg/backend/hostgw"
	_ "github.com/flannel-io/flannel/pkg/backend/vxlan"
	"github.com/flannel-io/flannel/pkg/ip"
	"github.com/flannel-io/flannel/pkg/ipmatch"
	"github.com/flannel-io/flannel/pkg/subnet/etcd"
	"github.com/flannel-io/flannel/pkg/trafficmngr/iptables"
)

const (
	subnetFile = "/run/flannel/subnet.env"
	resync     = 5 // seconds between two looks at the rules
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: flanneld ETCD-URL INTERFACE")
	}
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

// run leases a subnet, masquerades what leaves the network, writes the lease down for the CNI plugin, and serves the ways to other nodes.
func run(ctx context.Context, url, link string) error {
	none4, none6 := ip.IP4Net{}, ip.IP6Net{}
	leases, err := etcd.NewLocalManager(ctx, &etcd.EtcdConfig{Endpoints: []string{url}, Prefix: "/coreos.com/network"}, none4, none6, 60)
	if err != nil {
		return err
	}
	config, err := leases.GetNetworkConfig(ctx)
	if err != nil {
		return err
	}
	family, err := ipmatch.GetIPFamily(true, false)
	if err != nil {
		return err
	}
	uplink, err := ipmatch.LookupExtIface(link, "", "", family, ipmatch.PublicIPOpts{})
	if err != nil {
		return err
	}
	kind, err := backend.NewManager(ctx, leases, uplink).GetBackend(config.BackendType)
	if err != nil {
		return err
	}
	network, err := kind.RegisterNetwork(ctx, &sync.WaitGroup{}, config)
	if err != nil {
		return err
	}
	rules, lease := &iptables.IPTablesManager{}, network.Lease()
	rules.SetupAndEnsureForwardRules(ctx, config.Network, none6, resync)
	err = errors.Join(rules.Init(ctx),
		rules.SetupAndEnsureMasqRules(ctx, config.Network, none4, none4, none6, none6, none6, lease, resync, false),
		leases.HandleSubnetFile(subnetFile, config, true, lease.Subnet, none6, network.MTU()))
	if err != nil {
		return err
	}
	network.Run(ctx)
	return nil
}
