package plugin

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
)

// TestArguments is about what no row of the contract sends.
func TestArguments(t *testing.T) {
	for _, tt := range []struct {
		args string
		want map[string]string
		err  string
	}{
		{args: ";;", want: map[string]string{}},
		{args: "MAC=", want: map[string]string{"MAC": ""}},
		{args: "MAC=a;MAC=b", want: map[string]string{"MAC": "b"}},
		{args: "MAC=a;K8S_POD_NAME=web;K8S_POD_UID=7", err: "unknown keys K8S_POD_NAME, K8S_POD_UID"},
		{args: "A=b;IgnoreUnknown=true;IgnoreUnknown=false", err: "unknown keys A"},
		{args: "IgnoreUnknown=yes", err: `IgnoreUnknown is "yes"`},
		{args: "=a", err: `invalid pair "=a"`},
	} {
		got, err := Arguments(tt.args, "MAC")
		if tt.err == "" && (err != nil || !maps.Equal(got, tt.want)) || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%q: %v, %v; want %v, %q", tt.args, got, err, tt.want, tt.err)
		}
	}
}

func TestArgumentsLeavesKnownAlone(t *testing.T) {
	known := append(make([]string, 0, 8), "MAC")
	behind := known[:2]
	if _, err := Arguments("x=y", known...); err == nil {
		t.Fatal("no error")
	}
	if behind[1] != "" {
		t.Errorf("wrote %q behind the caller's list", behind[1])
	}
}

// FuzzArguments reads any CNI_ARGS: what comes out are known keys, and ignoring the unknown ones can't turn a good list into a bad one.
func FuzzArguments(f *testing.F) {
	for _, seed := range []string{
		"", ";", "=", "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=c0ffee;K8S_POD_UID=7d",
		"IP=10.88.0.9;MAC=aa:bb:cc:dd:ee:ff;", "IP=10.88.0.9/16,fd00::9/64;GATEWAY=10.88.0.1", "A==;B=;=C", "IgnoreUnknown=t",
	} {
		f.Add(seed)
	}
	known := []string{"IP", "MAC", "GATEWAY"}
	f.Fuzz(func(t *testing.T, args string) {
		values, err := Arguments(args, known...)
		if err != nil {
			var e *types.Error
			if !errors.As(err, &e) || e.Code != types.ErrInvalidEnvironmentVariables || e.Msg == "" || e.Details == "" {
				t.Fatalf("Arguments(%q): error %#v", args, err)
			}
			return
		}
		for key, value := range values {
			if !slices.Contains(known, key) || !strings.Contains(args, key+"="+value) {
				t.Errorf("Arguments(%q) has %s=%s", args, key, value)
			}
		}
		again, err := Arguments(args+";IgnoreUnknown=1", known...)
		if err != nil || !maps.Equal(values, again) {
			t.Errorf("with IgnoreUnknown: %v, %v; want %v", again, err, values)
		}
	})
}
