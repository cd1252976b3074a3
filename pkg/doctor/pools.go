package doctor

import "context"

// checkPools looks how many addresses are left, and what nobody uses any more.
func checkPools(_ context.Context, s *subject) (list []Finding, err error) {
	for _, n := range s.Networks {
		for _, p := range n.Pools {
			// A pool of one address is meant for one container.
			if p.Size < 2 || p.Used*10 < p.Size*9 {
				continue
			}
			remedy := comment("hand out more addresses: a larger subnet, or a second range, in %s", n.File)
			if p.Gone > 0 {
				remedy = command("cnictl", "gc", n.Name, "--apply")
			}
			list = append(list, found("pool-nearly-full", n.Name, remedy, "%d of %d addresses of %s (network %s) are taken, %d of them by attachments that are gone",
				p.Used, p.Size, p.Subnet, n.Name, p.Gone))
		}
		if n.Gone > 0 {
			list = append(list, found("leftovers", n.Name, command("cnictl", "gc", n.Name, "--apply"), "%s of network %s: the network namespace is gone, and gc would free what they hold",
				count(n.Gone, "attachment", "attachments"), n.Name))
		}
	}
	return list, nil
}
