package newnet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/utils"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/state"
)

// Options are what somebody wants to have. Values are chosen for empty ones.
type Options struct {
	Kind       string // of network: one of Kinds
	Name       string
	CNIVersion string
	ConfDir    string
	TakesOne   bool // the runtime takes the first file by name for all containers
	First      bool // it should take this one

	Subnets  []netip.Prefix
	Ranges   []Range
	Gateways []netip.Addr
	IPv6     bool // an IPv6 subnet, too
	DHCP     bool

	Bridge   string
	Master   string // also host-device's device
	VLAN     int
	NoPorts  bool
	Isolated bool
	Limit    int64    // bits a second, both ways
	Domain   string   // in which containers have names; "" is that they have none
	Allow    []string // that containers may reach
	Closed   bool     // all else is closed
}

// Plan is the file of a network, and what was chosen for it.
type Plan struct {
	Name   string
	Path   string
	Text   []byte
	Choice []Choice
}

// Choice is something that nobody has asked for, or that is worth to be known, and why it is so.
type Choice struct {
	What string `json:"what"`
	Is   string `json:"is"`
	Why  string `json:"why"`
}

// maker makes a plan.
type maker struct {
	Options
	host *Host
	plan *Plan
}

// Make makes a plan of what is wanted, or says what of it can't be.
func Make(o Options, h *Host) (*Plan, error) {
	m := &maker{o, h, &Plan{}}
	plugins, err := m.plugins()
	if err != nil {
		return nil, err
	}
	if err := m.chooseName(); err != nil {
		return nil, err
	}
	if err := m.chooseFile(); err != nil {
		return nil, err
	}
	list := conf.New()
	list.Set("cniVersion", o.CNIVersion)
	list.Set("name", m.plan.Name)
	list.Set("plugins", plugins)
	var text bytes.Buffer
	if err := json.Indent(&text, list.JSON(), "", "  "); err != nil {
		return nil, err
	}
	m.plan.Text = append(text.Bytes(), '\n')
	return m.plan, nil
}

func (m *maker) chose(what, is, why string, args ...any) {
	m.plan.Choice = append(m.plan.Choice, Choice{what, is, fmt.Sprintf(why, args...)})
}

// chooseName takes the name that was asked for if it is free, or makes one of the kind's.
func (m *maker) chooseName() error {
	if m.Name == "" {
		m.plan.Name = m.freeName()
		m.chose("name", m.plan.Name, "free; to have another one, say it: cnictl new %s NAME", m.Kind)
		return nil
	}
	if err := CheckName(m.Name, m.host); err != nil {
		return err
	}
	m.plan.Name = m.Name
	return nil
}

// CheckName refuses a name that no network can have, or that one has.
func CheckName(name string, h *Host) error {
	if err := utils.ValidateNetworkName(name); err != nil {
		return Wrongf("the name %q can't be: it must begin with a letter or a digit, and go on with these and . _ -", name)
	}
	if n := h.network(name); n != nil {
		return fmt.Errorf("there is a network %s already, in %s: choose another name, or move that file away", name, n.File)
	}
	return nil
}

// freeName returns the kind of the network as its name, with a number if it is taken.
func (m *maker) freeName() string {
	name := m.Kind
	if m.VLAN != 0 {
		name += fmt.Sprint(m.VLAN)
	}
	for i := 2; m.host.network(name) != nil; i++ {
		name = fmt.Sprint(m.Kind, "-", i)
	}
	return name
}

// Write writes the file. It replaces none.
func (p *Plan) Write() error {
	const mode = 0o644 // everybody may read what networks there are
	if err := os.MkdirAll(filepath.Dir(p.Path), 0o755); err != nil {
		return fmt.Errorf("make the directory: %w", err)
	}
	err := state.Create(p.Path, p.Text, mode)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already: choose another name, or move that file away", p.Path)
	}
	if err == nil {
		err = os.Chmod(p.Path, mode) // whatever the umask is
	}
	return err
}

// Wrong is an option that can't be, or one that is missing.
type Wrong struct{ error }

// Wrongf returns an error that is a Wrong.
func Wrongf(format string, args ...any) error { return Wrong{fmt.Errorf(format, args...)} }
