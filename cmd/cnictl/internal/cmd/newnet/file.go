package newnet

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// chooseFile names the network's file. Runtimes that give all containers one network take the first file by name, so the new one does not
// come before the others unless that is wanted.
func (m *maker) chooseFile() error {
	files, err := filesIn(m.ConfDir)
	if err != nil {
		return err
	}
	first := ""
	if len(files) > 0 && m.TakesOne {
		first = files[0]
	}
	name, ok := m.fileName(first)
	if !ok {
		return fmt.Errorf("no file name of two digits comes before %s: rename that file first", filepath.Join(m.ConfDir, first))
	}
	m.plan.Path = filepath.Join(m.ConfDir, name)
	if slices.Contains(files, name) {
		return fmt.Errorf("%s is there already: choose another name, or move that file away", m.plan.Path)
	}
	switch {
	case !m.TakesOne:
		m.chose("file", name, "containers say which network they want")
	case first == "":
		m.chose("file", name, "the only one: containerd and CRI-O give this network to all pods")
	case m.First:
		m.chose("file", name, "the first by name: containerd and CRI-O give this network to all new pods, and not that of %s", first)
	default:
		m.chose("file", name, "not the first: containerd and CRI-O go on to give pods that of %s; --first changes that", first)
	}
	return nil
}

// fileName returns a name that comes before or behind the first file's, with a number as people expect it, if there is one.
func (m *maker) fileName(first string) (name string, ok bool) {
	numbers := []int{}
	for i := 10; i < 100; i++ {
		numbers = append(numbers, i)
	}
	if m.First && first != "" {
		for i := 9; i >= 0; i-- {
			numbers = append(numbers, i)
		}
	}
	for _, i := range numbers {
		name = fmt.Sprintf("%02d-%s.conflist", i, m.plan.Name)
		if first == "" || m.First && name < first || !m.First && name > first {
			return name, true
		}
	}
	return m.plan.Name + ".conflist", !m.First
}

// filesIn returns the names of files that runtimes read in a directory, in their order.
func filesIn(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir) // sorted
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("look for networks: %w", err)
	}
	for _, e := range entries {
		if slices.Contains([]string{".conflist", ".conf", ".json"}, filepath.Ext(e.Name())) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
