package repair

import "github.com/cnibox/cnibox/pkg/operator/pluginfile"

// isForeign reports whether the plugin that runtimes find by a name is another program than cnibox, whose DEL would not know what is put back
// here. One that is not found is not judged: the runtime may have a directory that is not in the path.
func (s *shared) isForeign(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	foreign, known := s.foreign[name]
	if known {
		return foreign
	}
	if files := pluginfile.Find(s.Path, name); files != nil {
		foreign = files[0].Origin != pluginfile.Ours
	}
	s.foreign[name] = foreign
	return foreign
}
