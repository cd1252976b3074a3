package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestExamples runs each example of the documentation that is a whole network
// configuration: ADD, CHECK, STATUS and DEL of a container. A plugin's page also says what is to be seen after ADD.
func TestExamples(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/*/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal("no pages found", err)
	}
	block := regexp.MustCompile("(?s)```json\n(.*?)```")
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range block.FindAllStringSubmatch(string(text), -1) {
			conflist := m[1]
			var list struct {
				Name    string
				Plugins []struct{ Type string }
			}
			if err := json.Unmarshal([]byte(conflist), &list); err != nil {
				t.Errorf("%s: an example is no JSON: %v\n%s", page, err, conflist)
				continue
			}
			if list.Plugins == nil {
				continue // a part of a configuration, or a result
			}
			t.Run(strings.TrimSuffix(filepath.Base(page), ".md")+"/"+list.Name, func(t *testing.T) {
				t.Parallel()
				needLinks(t, conflist)
				host, outside := node(t)
				spareDevice(t, host, conflist)
				serveDHCP(t, host, outside, conflist)
				serveContiv(t, host, conflist)
				serveEtcd(t, host, conflist)
				rt := asPod(host.NewPod(t, "web").RuntimeConf(ports("8080:80/tcp")))
				if _, err := host.AddList(conflist, rt); err != nil {
					t.Fatalf("ADD: %v", err)
				}
				if i == 0 && strings.Contains(page, "/docs/plugins/") {
					shows(t, host, string(text))
				}
				if err := host.CheckList(conflist, rt); err != nil {
					t.Errorf("CHECK: %v", err)
				}
				if err := host.StatusList(conflist); err != nil {
					t.Errorf("STATUS: %v", err)
				}
				if err := host.DelList(conflist, rt); err != nil {
					t.Errorf("DEL: %v", err)
				}
			})
		}
	}
}
