package doctor

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/coreos/go-iptables/iptables"
	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter/program"
)

// ruleset is what the checks need of the packet filter's rules. checkPackets sees for itself where they lead packets.
type ruleset struct {
	kubeProxy bool // rules of Kubernetes' Services are there
}

func readRuleset() (ruleset, error) {
	r := ruleset{}
	return r, errors.Join(r.readNFT(), r.readLegacy())
}

// readNFT reads nf_tables, which iptables-nft uses too. A kernel without it has nothing there.
func (r *ruleset) readNFT() error {
	conn, err := nftables.New(nftables.AsLasting())
	if err == nil {
		err = errors.Join(r.readChains(conn), conn.CloseLasting())
	}
	for _, lacking := range []error{unix.EINVAL, unix.EOPNOTSUPP, unix.EAFNOSUPPORT, unix.EPROTONOSUPPORT} {
		if errors.Is(err, lacking) {
			return nil
		}
	}
	return err
}

func (r *ruleset) readChains(conn *nftables.Conn) error {
	chains, err := conn.ListChains()
	for _, c := range chains {
		if c.Name == kubeServices || c.Table.Name == "kube-proxy" {
			r.kubeProxy = true
		}
	}
	return err
}

// kubeServices is a chain that kube-proxy makes by iptables.
const kubeServices = "KUBE-SERVICES"

// readLegacy asks iptables-legacy, if its table is there: to ask for another one would make it.
func (r *ruleset) readLegacy() error {
	text, _ := os.ReadFile("/proc/net/ip_tables_names") // there is none without iptables-legacy
	if !slices.Contains(strings.Fields(string(text)), "nat") {
		return nil
	}
	path, err := program.Find("iptables-legacy")
	if err != nil {
		return fmt.Errorf("the kernel has rules of iptables-legacy, and there is no program iptables-legacy to list them")
	}
	p, err := iptables.New(iptables.Path(path), iptables.Timeout(5))
	if err != nil {
		return err
	}
	is, err := p.ChainExists("nat", kubeServices)
	r.kubeProxy = r.kubeProxy || is
	return err
}
