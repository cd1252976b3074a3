package trace

import "strings"

// stage is a step of the packet at its place, with the hook at which it is. Hooks of other families than inet have it in front.
type stage struct {
	Event
	at   *place
	hook string
	done bool // all that is at the hook was passed
}

// request returns the steps of the packet on its way there, and answer those of what came back. Of packets that were repeated it is the first.
func (r *run) request() []stage { return r.sequence(false) }
func (r *run) answer() []stage  { return r.sequence(true) }

func (r *run) sequence(answer bool) (list []stage) {
	from, to := r.source, r.target
	if to == nil && r.Target != nil {
		to = r.source // it asks itself, by the host
	}
	if answer {
		from, to = to, from
	}
	if from != nil && !from.isHost() {
		list = append(list, r.stages(from, answer, leaves)...)
	}
	list = append(list, r.stages(r.host, answer, anyHook)...)
	if to != nil && !to.isHost() {
		list = append(list, r.stages(to, answer, enters)...)
	}
	return list
}

func anyHook(string) bool { return true }

// leaves reports whether packets at a hook come from the place itself.
func leaves(hook string) bool {
	return hook == "output" || hook == "postrouting"
}

func enters(hook string) bool { return !leaves(hook) && hook != "forward" }

// stages returns the steps at a place, until it has all seen that comes again.
func (r *run) stages(p *place, answer bool, isHook func(string) bool) (list []stage) {
	type visit struct {
		chain, family string
		in            int
	}
	seen := map[visit]bool{}
	hook, done := "", true
	for _, e := range r.steps[p] {
		if e.Packet.About.IsValid() || r.isAnswer(e.Packet) != answer {
			continue
		}
		if e.own {
			at, which := e.point()
			if !strings.Contains(e.Chain, "-") { // a chain for the state of a connection
				at = hook
			}
			hook, done = at, which == end && e.isCheckpoint()
			v := visit{e.Chain, e.Family, e.In}
			if seen[v] {
				return list
			}
			seen[v] = seen[v] || e.isCheckpoint()
		}
		if isHook(hook) {
			list = append(list, stage{e, p, hook, done})
		}
	}
	return list
}

// discovery returns the steps of questions and answers about who has an address, at a place.
func (r *run) discovery(p *place) (list []Event) {
	for _, e := range r.steps[p] {
		if e.Packet.About.IsValid() {
			list = append(list, e)
		}
	}
	return list
}

// dropped returns the step at which somebody has dropped the packet, nil if nobody has.
func dropped(list []stage) *stage {
	for i := range list {
		if list[i].drops() {
			return &list[i]
		}
	}
	return nil
}

// queued returns the step at which the packet was handed to a program, if nothing was seen of it since: one that has no program may pass. nil if there is none.
func queued(list []stage) *stage {
	if n := len(list) - 1; n >= 0 && list[n].Verdict == Queue {
		return &list[n]
	}
	return nil
}

// kept returns the step at which we have kept the packet itself on the node, and not its answer, nil if there is none.
func kept(list []stage) *stage {
	for i := range list {
		if list[i].own && list[i].Verdict == Drop {
			return &list[i]
		}
	}
	return nil
}

// lastOf is the last of our own points that a packet has come to.
func lastOf(list []stage) (last stage) {
	for _, s := range list {
		if s.isCheckpoint() {
			last = s
		}
	}
	return last
}

// hasEntered reports whether the packet was in one of our chains for the state of connections.
func hasEntered(list []stage, chain string) bool {
	for _, s := range list {
		if s.own && s.Target == chain {
			return true
		}
	}
	return false
}
