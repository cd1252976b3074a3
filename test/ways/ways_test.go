// Package ways shows after which usual ways to install a directory of plugins, or other software's plugins into it, each name is the plugin that it
// should be.
//
//	go test ./test/ways -v                                            # prints the table
//	go test ./test/ways -run '^$' -bench Start -benchtime 500x        # how long a plugin takes to start, by the kind of its file
//	go test ./test/ways -run '^$' -bench Size -benchtime 1x           # how large they are
package ways

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

// page has the sums, and the ways in which stubs are not right.
const page = "../../docs/operate/cnictl/install.md"

// layouts are what the files of the plugins can be.
var layouts = []string{"stubs", "links", "copies"}

// makeLayouts has a function that makes a directory of each layout, as PREFIX-LAYOUT. Earlier versions made links.
const makeLayouts = `
	cp "$CNIBOX" cnibox
	make() {
		prefix=$1; shift
		"$CNICTL" install --dir $PWD/$prefix-stubs --from cnibox "$@"
		"$CNICTL" install --dir $PWD/$prefix-links --from cnibox "$@"
		for name in $(ls $prefix-links); do [ $name = cnibox ] || ln -sf cnibox $prefix-links/$name; done
		"$CNICTL" install --dir $PWD/$prefix-copies --from cnibox --link copy "$@"
		rm $prefix-*/.cnibox.json
	} >&2`

// prepare is run once on the node of a layout: the plugins, those of the reference, of which dhcp is one that ours leave alone, those of another
// network's software, and a cnibox of another version.
const prepare = makeLayouts + `
	mkdir ref others
	make some --only bridge,flannel,host-local,portmap
	for name in bridge dhcp host-local portmap; do cp "$REFERENCE/$name" ref; done
	printf '#!/bin/sh\necho "CNI ${0##*/} plugin of others" >&2\n' >others/flannel
	cp others/flannel others/portmap
	LC_ALL=C sed 's/+cnibox\.0/+cnibox.9/' cnibox >newer
	chmod 755 others/* newer`

// ours are the plugins that are installed, and theirs the reference's.
var (
	ours   = []string{"bridge", "flannel", "host-local", "portmap"}
	theirs = []string{"bridge", "dhcp", "host-local", "portmap"}
)

// try runs a way where src has the layout, dst is empty, and ref, others, newer and links (an earlier version's) are as prepare made them. It prints
// what each name in dst answers. There is nothing at src any more, unless the way keeps it.
const try = `
	layout=$1 way=$2 keeps=$3
	cd /run
	rm -rf way
	mkdir -p way/dst
	cp -al some-$layout way/src
	ref=/run/ref others=/run/others newer=/run/newer links=/run/some-links src=/run/way/src dst=/run/way/dst
	eval "$way"
	[ $keeps = true ] || mount -t tmpfs tmpfs $src
	for link in $(find $dst -type l); do
		case $keeps,$(readlink -f $link) in true,*|*,$dst/*) ;; *) echo "${link##*/} leads elsewhere" ;; esac
	done
	for name in $(ls $dst); do
		[ $name = cnibox ] || echo $name "$({ $dst/$name </dev/null; } 2>&1 | sed -n '/^CNI [^ ]* plugin /p' | head -n 1)"
	done`

// way is one of the usual ways.
type way struct {
	name, script string
	// ours are the plugins that should be ours then, all of them but others if there are none.
	ours []string
	// others are those that should be others'.
	others []string
	// keeps is a way that needs the directory that it installs from.
	keeps bool
	// notes are what comes of it, by the layout, where it is not plainly right.
	notes map[string]string
}

const (
	intoReference = `cp $ref/* $dst; `
	intoLinks     = `cp -a $links/. $dst; `
	intoOurs      = `cp -a $src/. $dst; `
)

var ways = []way{
	{name: "tar, into an empty directory", script: `tar -C $src -cz . | tar -C $dst -xz`},
	{name: "tar, over the reference plugins", script: intoReference + `tar -C $src -c . | tar -C $dst -x`, others: []string{"dhcp"}},
	{name: "tar, over links of an earlier version", script: intoLinks + `tar -C $src -c . | tar -C $dst -x`},
	{name: "`cp -r`, into an empty directory", script: `cp -r $src/. $dst`},
	{name: "`cp -a`, over the reference plugins", script: intoReference + `cp -a $src/. $dst`, others: []string{"dhcp"}},
	{name: "`cp -rL`, over the reference plugins", script: intoReference + `cp -rL $src/. $dst`, others: []string{"dhcp"}},
	{name: "`cp -f` of each file, over links of an earlier version", script: intoLinks + `cp -f $src/* $dst`,
		notes: map[string]string{"stubs": "bridge, flannel, host-local, portmap run nothing"}},
	{name: "`install -m 755`, over links of an earlier version", script: intoLinks + `install -m 755 $src/* $dst`},
	{name: "`mv` of each file, over the reference plugins", script: intoReference + `mv -f $src/* $dst`, others: []string{"dhcp"}},
	{name: "each file made aside and renamed (Ansible), over links of an earlier version",
		script: intoLinks + `for name in $(ls $src); do cp $src/$name $dst/.aside; mv -f $dst/.aside $dst/$name; done`},
	{name: "hard links", script: `ln $src/* $dst`},
	{name: "files alone, no links (`kubectl cp`)", script: `(cd $src; find . -type f | tar -cT -) | tar -C $dst -x`,
		notes: map[string]string{"links": "bridge, flannel, host-local, portmap are missing"}},
	{name: "the names that everybody knows (`COPY --from`), and no `cnibox`",
		script: `for name in bridge host-local portmap; do cp $src/$name $dst; done`, ours: strings.Fields("bridge host-local portmap")},
	{name: "names without `cnibox` and `host-local`",
		script: `for name in bridge portmap; do cp $src/$name $dst; done`, ours: strings.Fields("bridge portmap"),
		notes: map[string]string{"stubs": "bridge, portmap run nothing"}},
	{name: "a link to each file, in another directory", script: `ln -s $src/* $dst`, keeps: true},
	{name: "the directory mounted elsewhere, read-only", script: `mount --bind $src $dst; mount -o remount,ro,bind $dst`},
	{name: "one file mounted over the reference's", script: intoReference + `mount --bind $src/portmap $dst/portmap`,
		ours: []string{"portmap"}, others: strings.Fields("bridge dhcp host-local"),
		notes: map[string]string{"stubs": "portmap runs nothing"}},
	{name: "a newer `cnibox` alone, made aside and renamed", script: intoOurs + `cp $newer $dst/.aside; mv $dst/.aside $dst/cnibox`,
		notes: map[string]string{"stubs": "right, but host-local stays older", "copies": "right, but bridge, flannel, host-local, portmap stay older"}},
	{name: "a newer `cnibox` alone, `cp -f`", script: intoOurs + `cp -f $newer $dst/cnibox`,
		notes: map[string]string{"stubs": "right, but host-local stays older", "copies": "right, but bridge, flannel, host-local, portmap stay older"}},
	{name: "others' `cp -f flannel`, `cp -f portmap`", script: intoOurs + `cp -f $others/flannel $dst/flannel; cp -f $others/portmap $dst/portmap`,
		others: strings.Fields("flannel portmap"),
		notes:  map[string]string{"links": "bridge, host-local are overwritten"}},
	{name: "others' `busybox cp -f portmap`", script: intoOurs + `busybox cp -f $others/portmap $dst/portmap`, others: []string{"portmap"},
		notes: map[string]string{"links": "bridge, flannel, host-local are overwritten"}},
	{name: "others' `cat >portmap`", script: intoOurs + `cat $others/portmap >$dst/portmap`, others: []string{"portmap"},
		notes: map[string]string{"links": "bridge, flannel, host-local are overwritten"}},
	{name: "others' `install -m 755 portmap`", script: intoOurs + `install -m 755 $others/portmap $dst/portmap`, others: []string{"portmap"}},
	{name: "others' `mv -f portmap`", script: intoOurs + `cp $others/portmap $dst/.aside; mv -f $dst/.aside $dst/portmap`, others: []string{"portmap"}},
	{name: "others' tar of all reference plugins", script: intoOurs + `tar -C $ref -c . | tar -C $dst -x`, others: theirs, ours: []string{"flannel"}},
	{name: "others' `cp -f` of all reference plugins", script: intoOurs + `cp -f $ref/* $dst`, others: theirs, ours: []string{"flannel"},
		notes: map[string]string{"links": "bridge, flannel, host-local are another plugin"}},
	{name: "`rm` of one name", script: intoOurs + `rm $dst/portmap`, ours: strings.Fields("bridge flannel host-local")},
}

// TestWays tries each way with each layout.
func TestWays(t *testing.T) {
	outcomes := make([][]string, len(layouts))
	t.Run("layouts", func(t *testing.T) {
		for n, layout := range layouts {
			t.Run(layout, func(t *testing.T) {
				t.Parallel()
				outcomes[n] = tryAll(t, layout)
			})
		}
	})
	if t.Failed() {
		return
	}
	t.Log("\n" + table(outcomes))
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if section := section(outcomes); !strings.Contains(string(text), section) {
		t.Errorf("%s has other sums or other ways. It should say:\n%s", page, section)
	}
}

// tryAll returns what comes of each way.
func tryAll(t *testing.T, layout string) (outcomes []string) {
	h := netlab.NewHost(t)
	run(t, h, prepare)
	for _, way := range ways {
		got := way.try(t, h, layout, "")
		if want := cmp.Or(way.notes[layout], "right"); got != want {
			t.Errorf("%s: %s; want %s", way.name, got, want)
		}
		outcomes = append(outcomes, got)
	}
	return outcomes
}

// try runs a way and what follows it, and returns what comes of them.
func (w *way) try(t *testing.T, h *netlab.Host, layout, then string) (outcome string) {
	t.Helper()
	return w.outcome(h.MustRun(t, "unshare", "--mount", "sh", "-euc", try, "sh", layout, w.script+"\n"+then, fmt.Sprint(w.keeps)))
}

// TestInstallAfter has cnictl install put right what a way has left, as the page says. It does not replace a file that is mounted.
func TestInstallAfter(t *testing.T) {
	h := netlab.NewHost(t)
	run(t, h, prepare)
	for _, way := range ways {
		if way.notes["stubs"] == "" || strings.Contains(way.script, "mount") {
			continue
		}
		names := way.ours
		if names == nil {
			names = ours
		}
		install := netlab.Cnictl(t) + " install --dir $dst --from $newer --only " + strings.Join(names, ",") + " >&2"
		if got := way.try(t, h, "stubs", install); got != "right" {
			t.Errorf("%s: %s; want right", way.name, got)
		}
	}
}

// run runs a script in the node's /run, which has the programs under test in variables.
func run(t testing.TB, h *netlab.Host, script string) string {
	t.Helper()
	return h.MustRun(t, "env", "--chdir=/run", "CNIBOX="+netlab.Cnibox(t), "CNICTL="+netlab.Cnictl(t), "REFERENCE="+netlab.Reference(t),
		"sh", "-euc", script)
}

// outcome says in a few words what comes of a way, by what the names answer.
func (w *way) outcome(answers string) string {
	// What is wrong, once for one name and once for several.
	const (
		elsewhere = "leads out of the directory,lead out of the directory"
		missing   = "is missing,are missing"
		nothing   = "runs nothing,run nothing"
		another   = "is another plugin,are another plugin"
		taken     = "is overwritten,are overwritten"
		kept      = "is ours,are ours"
		surplus   = "should not be there,should not be there"
	)
	want := map[string]string{}
	for _, name := range ours {
		if w.ours == nil || slices.Contains(w.ours, name) {
			want[name] = kept
		}
	}
	for _, name := range w.others {
		want[name] = taken
	}
	wrong, older, newer := map[string][]string{}, []string{}, false
	for line := range strings.Lines(answers) {
		name, answer, _ := strings.Cut(strings.TrimSpace(line), " ")
		got := taken
		switch {
		case answer == "leads elsewhere":
			wrong[elsewhere] = append(wrong[elsewhere], name)
			continue
		case answer == "":
			got = nothing
		case !strings.HasPrefix(answer, "CNI "+name+" plugin "):
			got = another
		case strings.Contains(answer, "+cnibox."):
			got = kept
			if strings.Contains(answer, "+cnibox.9") {
				newer = true
			} else {
				older = append(older, name)
			}
		}
		if want[name] == "" {
			got = surplus
		}
		if got != want[name] {
			wrong[got] = append(wrong[got], name)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		wrong[missing] = slices.Collect(maps.Keys(want))
	}
	var said []string
	say := func(names []string, verbs string) {
		one, several, _ := strings.Cut(verbs, ",")
		slices.Sort(names)
		if len(names) > 1 {
			one = several
		}
		said = append(said, strings.Join(names, ", ")+" "+one)
	}
	for _, verbs := range slices.Sorted(maps.Keys(wrong)) {
		say(wrong[verbs], verbs)
	}
	if len(said) > 0 {
		return strings.Join(said, "; ")
	}
	if len(older) > 0 && (newer || strings.Contains(w.script, "$newer")) {
		say(older, "stays older,stay older")
		return "right, but " + said[0]
	}
	return "right"
}

// sum returns in how many ways a layout is right. An older plugin is.
func sum(outcomes []string) (right int) {
	for _, outcome := range outcomes {
		if strings.HasPrefix(outcome, "right") {
			right++
		}
	}
	return right
}

// table returns all outcomes in Markdown.
func table(outcomes [][]string) string {
	text := "| way | " + strings.Join(layouts, " | ") + " |\n|---|" + strings.Repeat("---|", len(layouts)) + "\n"
	for n, way := range ways {
		text += "| " + way.name
		for layout := range layouts {
			text += " | " + outcomes[layout][n]
		}
		text += " |\n"
	}
	text += fmt.Sprintf("| right in, of %d", len(ways))
	for layout := range layouts {
		text += fmt.Sprintf(" | %d", sum(outcomes[layout]))
	}
	return text + " |\n"
}

// section returns what the page has of it.
func section(outcomes [][]string) string {
	text := "| files | right in |\n| --- | --- |\n"
	for n, files := range []string{"stubs", "links to `cnibox`, which earlier versions made", "whole copies"} {
		text += fmt.Sprintf("| %s | %d of %d |\n", files, sum(outcomes[n]), len(ways))
	}
	text += "\n| not plainly right with stubs | what comes of it |\n| --- | --- |\n"
	for n, way := range ways {
		if outcome := outcomes[0][n]; outcome != "right" {
			text += "| " + way.name + " | " + outcome + " |\n"
		}
	}
	return text
}
