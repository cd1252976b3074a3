package plugin

import (
	"slices"
	"testing"

	"github.com/containernetworking/cni/pkg/version"
)

func TestVersionsAreTheFields(t *testing.T) {
	if want := version.All.SupportedVersions(); !slices.Equal(Versions(""), want) {
		t.Errorf("Versions = %q, want %q", Versions(""), want)
	}
	if version.Current() != CurrentVersion {
		t.Errorf("CurrentVersion = %s, want %s", CurrentVersion, version.Current())
	}
}

func TestAtLeast(t *testing.T) {
	for _, tt := range []struct {
		v, oldest string
		want      bool
	}{
		{"1.0.0", "1.0.0", true}, {"1.1.0", "0.4.0", true}, {"0.4.0", "1.0.0", false}, {"0.2.0", "0.3.0", false}, {"9.9.9", "0.1.0", false},
	} {
		if got := AtLeast(tt.v, tt.oldest); got != tt.want {
			t.Errorf("AtLeast(%s, %s) = %v", tt.v, tt.oldest, got)
		}
	}
}
