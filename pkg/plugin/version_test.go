package plugin

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
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

func TestVersionsFrom(t *testing.T) {
	if got, want := Versions("0.4.0"), []string{"0.4.0", "1.0.0", "1.1.0"}; !slices.Equal(got, want) {
		t.Errorf("Versions(0.4.0) = %q, want %q", got, want)
	}
}

func TestCheckVersion(t *testing.T) {
	tests := []struct {
		version string
		command Command
		oldest  string
		msg     string // "" for no error
		details string
	}{
		{"0.1.0", Add, "", "", ""},
		{"1.1.0", Add, "", "", ""},
		{"0.1.0", Del, "", "", ""},
		{"0.4.0", Check, "", "", ""},
		{"1.1.0", GC, "", "", ""},
		{"1.1.0", Status, "0.4.0", "", ""},
		{"1.2.0", Add, "", `cniVersion is "1.2.0"`, "0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0"},
		{"1.0", Add, "", `cniVersion is "1.0"`, "set cniVersion to one of"},
		{"v1.0.0", Del, "", `cniVersion is "v1.0.0"`, "set cniVersion to one of"},
		{"", Add, "", `cniVersion is ""`, "set cniVersion to one of"},
		{"0.3.1", Add, "0.4.0", `cniVersion is "0.3.1"`, "set cniVersion to one of 0.4.0, 1.0.0, 1.1.0"},
		{"bogus", Check, "", `cniVersion is "bogus"`, "set cniVersion to one of"},
		{"0.3.1", Check, "", "config version does not allow CHECK", "CHECK came with CNI 0.4.0"},
		{"1.0.0", GC, "", "config version does not allow GC", "GC came with CNI 1.1.0"},
		{"1.0.0", Status, "", "config version does not allow STATUS", "STATUS came with CNI 1.1.0"},
	}
	for _, tt := range tests {
		t.Run(tt.version+" "+string(tt.command)+" from "+tt.oldest, func(t *testing.T) {
			err := CheckVersion(tt.version, tt.command, tt.oldest)
			if tt.msg == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var e *types.Error
			if !errors.As(err, &e) {
				t.Fatalf("error %v", err)
			}
			if e.Code != types.ErrIncompatibleCNIVersion || !strings.Contains(e.Msg, tt.msg) || !strings.Contains(e.Details, tt.details) {
				t.Errorf("got code %d, %q, %q\nwant code 1, %q, %q", e.Code, e.Msg, e.Details, tt.msg, tt.details)
			}
		})
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
