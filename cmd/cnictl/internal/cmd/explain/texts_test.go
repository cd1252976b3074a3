package explain

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// modules are those of our go.mod whose messages are known; programs are in the packages that tests need.
var (
	modules  = map[string]string{"containernetworking/cni": "github.com/containernetworking/cni", "containernetworking/plugins": "github.com/containernetworking/plugins"}
	programs = map[string][]string{"iptables": {"/usr/sbin/xtables-nft-multi", "/usr/sbin/xtables-legacy-multi", "/usr/lib/x86_64-linux-gnu/libxtables.so.12"}}
)

// byRuntimes are looked at by test/runtimes, and elsewhere is the source of others, which no test has.
var (
	byRuntimes = []string{"containerd/containerd", "containerd/go-cni", "flannel-io/flannel", "podman"}
	elsewhere  = []string{"aws/amazon-vpc-cni-k8s", "cilium/cilium", "containerd/nerdctl", "cri-o/cri-o", "cri-o/ocicni", "flannel-io/cni-plugin", "hashicorp/nomad",
		"k8snetworkplumbingwg/multus-cni", "kubernetes/kubernetes", "moby/moby", "projectcalico/calico", "weaveworks/weave"}
)

// TestTexts compares the texts of messages with the source of those who print them, and with the lines that are explained.
func TestTexts(t *testing.T) {
	sources := map[string]string{}
	for name, module := range modules {
		dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
		if err != nil {
			t.Fatal(err)
		}
		sources[name] = goSource(t, strings.TrimSpace(string(dir)))
	}
	for name, files := range programs {
		for _, file := range files {
			text, _ := os.ReadFile(file) // one of them has it
			sources[name] += string(text)
		}
	}
	seen := slices.Concat(slices.Collect(maps.Values(logged(t)))...)
	held, others := 0, 0
	for _, k := range messages() {
		seen = append(seen, k.Example)
		for of, texts := range k.Texts {
			for _, text := range texts {
				if !k.pattern.MatchString(verbs.ReplaceAllString(text, "something")) && !slices.ContainsFunc(seen, func(line string) bool { return inCommon(verbs.ReplaceAllString(text, "…"), line) > 0 }) {
					t.Errorf("%s: its pattern does not match %q, and neither its example nor a line of testdata/logs.txt has it", k.ID, text)
				}
				switch source, is := sources[of]; {
				case is && !strings.Contains(source, text) && !strings.Contains(source, strings.Trim(strconv.Quote(text), `"`)):
					t.Errorf("%s: %s does not say %q", k.ID, of, text)
				case is:
					held++
				case !slices.Contains(byRuntimes, of) && !slices.Contains(elsewhere, of):
					t.Errorf("%s: nobody looks at %s", k.ID, of)
				default:
					others++
				}
			}
		}
	}
	t.Logf("%d texts are held here, %d are others'", held, others)
}

var verbs = regexp.MustCompile(`%[a-zA-Z]`)

func goSource(t *testing.T, dir string) string {
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
