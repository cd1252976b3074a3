package repair

import (
	"debug/buildinfo"
	"os"
	"path/filepath"
	"runtime/debug"
)

// isForeign reports whether the plugin that runtimes find by a name is another program than cnibox, whose DEL would not know what is put back
// here. One that is not found is not judged: the runtime may have a directory that is not in the path.
func (s *shared) isForeign(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	foreign, known := s.foreign[name]
	if known {
		return foreign
	}
	for _, dir := range s.Path {
		path := filepath.Join(dir, name)
		if file, err := os.Stat(path); err == nil && file.Mode().IsRegular() {
			foreign = !isOurs(path)
			break
		}
	}
	s.foreign[name] = foreign
	return foreign
}

// isOurs reports whether a program was built from the same Go module as this one.
func isOurs(path string) bool {
	own, ok := debug.ReadBuildInfo()
	file, err := buildinfo.ReadFile(path)
	return ok && err == nil && file.Main.Path == own.Main.Path
}
