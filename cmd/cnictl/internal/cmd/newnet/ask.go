package newnet

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
)

// asker asks a person for what is wanted. An empty answer is what stands in brackets.
type asker struct {
	in       *bufio.Reader
	out      io.Writer
	terminal bool
}

// text asks for a text.
func (a *asker) text(question, usual string) (string, error) {
	if usual != "" {
		question += " [" + usual + "]"
	}
	fmt.Fprint(a.out, question, " ")
	line, err := a.in.ReadString('\n')
	if err != nil { // the end, of a line that is not complete too
		fmt.Fprintln(a.out)
		return "", fmt.Errorf("there is no answer: %w", err)
	}
	return cmp.Or(strings.TrimSpace(line), usual), nil
}

// yes asks a question that has yes or no as its answer.
func (a *asker) yes(question string, usual bool) (bool, error) {
	choice := "y/N"
	if usual {
		choice = "Y/n"
	}
	for {
		answer, err := a.text(question, choice)
		if err != nil {
			return false, err
		}
		switch strings.ToLower(answer) {
		case "y", "yes":
			return true, nil
		case "n", "no":
			return false, nil
		case strings.ToLower(choice):
			return usual, nil
		}
		fmt.Fprintln(a.out, "  answer y or n")
	}
}

// kind asks which kind of network to make.
func (a *asker) kind() (Kind, error) {
	for i, k := range Kinds {
		fmt.Fprintf(a.out, "%d  %-12s %s\n", i+1, k.Name, k.Short)
	}
	for {
		answer, err := a.text("Which kind of network?", Kinds[0].Name)
		if err != nil {
			return Kind{}, err
		}
		for i, k := range Kinds {
			if answer == k.Name || answer == strconv.Itoa(i+1) {
				return k, nil
			}
		}
		fmt.Fprintln(a.out, "  answer with a name or a number of the list")
	}
}

// options asks for what a kind of network needs to know. It asks again for a value that can't be.
func (a *asker) options(o *Options, kind Kind, h *Host) error {
	for {
		answer, err := a.text("Name of the network, or nothing to have one chosen?", "")
		if err != nil {
			return err
		}
		if answer == "" {
			break
		}
		if wrong := CheckName(answer, h); wrong != nil {
			fmt.Fprintln(a.out, " ", wrong)
			continue
		}
		o.Name = answer
		break
	}
	switch {
	case kind.Subnet:
		return a.ownSubnet(o, kind)
	case kind.LAN:
		return a.lan(o, kind, h)
	}
	return nil
}

func (a *asker) ownSubnet(o *Options, kind Kind) (err error) {
	if o.Subnets, err = a.subnet("Subnet, or nothing to have a free one chosen?", ""); err != nil {
		return err
	}
	if o.IPv6, err = a.yes("IPv6 too?", false); err != nil || !kind.Routed {
		return err
	}
	ports, err := a.yes("Published ports?", true)
	o.NoPorts = !ports
	return err
}

// subnet asks for a subnet until the answer is one, or empty.
func (a *asker) subnet(question, usual string) ([]netip.Prefix, error) {
	for {
		answer, err := a.text(question, usual)
		if err != nil || answer == "" {
			return nil, err
		}
		p, wrong := netip.ParsePrefix(answer)
		if wrong == nil {
			wrong = CheckSubnet(p)
		}
		if wrong == nil {
			return []netip.Prefix{p}, nil
		}
		fmt.Fprintln(a.out, " ", wrong)
	}
}

// lan asks for what a network needs to know of the LAN that it is on.
func (a *asker) lan(o *Options, kind Kind, h *Host) (err error) {
	question, usual := "Which link of the host leads to the LAN?", h.Uplink
	if row(kind.Name).Reads("device") {
		question, usual = "Which network card does the container get?", ""
	}
	if o.Master, err = a.text(question, usual); err != nil {
		return err
	}
	if row(kind.Name).Reads("vlanId") {
		number, err := a.text("Which VLAN, 1 to 4094?", "")
		if err != nil {
			return err
		}
		o.VLAN, _ = strconv.Atoi(number) // what is none is refused
	}
	if !row(kind.Name).Facts(nil).SharesMAC {
		if o.DHCP, err = a.yes("Addresses from the LAN's DHCP server?", false); err != nil || o.DHCP {
			return err
		}
	}
	if kind.isForOne() {
		o.Subnets, err = a.subnet("Subnet of the LAN?", "")
		return err
	}
	return a.lanRange(o, h)
}

// lanRange asks for the addresses of a LAN that containers may have: nobody can know that but the person.
func (a *asker) lanRange(o *Options, h *Host) error {
	usual := ""
	for i := range h.Links {
		if h.Links[i].Name == o.Master {
			if lan, r := Suggest(&h.Links[i], h); lan.IsValid() {
				usual = r.String()
			}
		}
	}
	fmt.Fprintln(a.out, "Containers get addresses of the LAN. Nobody else may have these, and no DHCP server may give them out.")
	for {
		answer, err := a.text("Which addresses?", usual)
		if err != nil {
			return err
		}
		r, wrong := ParseRange(answer)
		if wrong == nil {
			o.Ranges = []Range{r}
			return nil
		}
		fmt.Fprintln(a.out, " ", wrong)
	}
}
