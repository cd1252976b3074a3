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

// TestPages makes sure that each plugin has a page that documents each key the
// code reads.
func TestPages(t *testing.T) {
	t.Parallel()
	folders, err := filepath.Glob("../../plugins/*/*")
	if err != nil || len(folders) == 0 {
		t.Fatal("no plugins found", err)
	}
	names := map[string]string{"hostlocal": "host-local", "hostdevice": "host-device"}
	key := regexp.MustCompile(`\.(?:String|Bool|Int|OptionalInt|OptionalBool|Strings|Object|Objects|ObjectLists|Has)\("([A-Za-z]+)"`)
	for _, folder := range folders {
		name := filepath.Base(folder)
		if special, ok := names[name]; ok {
			name = special
		}
		page, err := os.ReadFile("../../docs/plugins/" + name + ".md")
		if err != nil {
			t.Errorf("plugin %s has no page: %v", name, err)
			continue
		}
		sources, _ := filepath.Glob(folder + "/*.go")
		for _, source := range sources {
			if strings.HasSuffix(source, "_test.go") {
				continue
			}
			text, err := os.ReadFile(source)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range key.FindAllStringSubmatch(string(text), -1) {
				if !strings.Contains(string(page), m[1]) {
					t.Errorf("docs/plugins/%s.md does not mention the key %q, which %s reads", name, m[1], source)
				}
			}
		}
	}
}
