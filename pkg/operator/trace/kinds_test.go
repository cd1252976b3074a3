package trace

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

// page is the manual's, which is made from the declarations.
const page = "../../../docs/operate/dropped.md"

var update = flag.Bool("update", false, "write docs/operate/dropped.md anew")

// TestPage compares the page with the causes that are declared. With -update it writes its tables anew.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(string(text), "\n## "+string(Symptoms()[0]))
	want := head
	for _, s := range Symptoms() {
		want += fmt.Sprintf("\n## %s\n\n| cause | what it is | what to do |\n| --- | --- | --- |\n", s)
		for _, k := range Kinds() {
			if k.Symptom == s {
				want += fmt.Sprintf("| `%s` | %s | %s |\n", k.Name, k.Meaning, k.Remedy)
			}
		}
	}
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(text) != want {
		t.Errorf("%s is not what is declared; make messages writes it", page)
	}
}

// TestKinds makes sure that each cause has a name of its own, and says what it is and what to do.
func TestKinds(t *testing.T) {
	for _, k := range Kinds() {
		if Codes().Find(k.Name) != k.Code || k.Meaning == "" || k.Remedy == "" {
			t.Errorf("%+v", *k.Code)
		}
	}
}
