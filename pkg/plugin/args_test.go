package plugin

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
)

func TestArguments(t *testing.T) {
	tests := []struct {
		name, args string
		known      []string
		want       map[string]string
		err        string
	}{
		{"none", "", nil, map[string]string{}, ""},
		{"one", "MAC=02:00:00:00:00:01", []string{"MAC"}, map[string]string{"MAC": "02:00:00:00:00:01"}, ""},
		{"two", "IP=10.0.0.2;MAC=a", []string{"MAC", "IP"}, map[string]string{"MAC": "a", "IP": "10.0.0.2"}, ""},
		{"semicolon at the end", "MAC=a;", []string{"MAC"}, map[string]string{"MAC": "a"}, ""},
		{"semicolons only", ";;", nil, map[string]string{}, ""},
		{"equals sign in the value", "MAC=a=b=;", []string{"MAC"}, map[string]string{"MAC": "a=b="}, ""},
		{"empty value", "MAC=", []string{"MAC"}, map[string]string{"MAC": ""}, ""},
		{"the last of two", "MAC=a;MAC=b", []string{"MAC"}, map[string]string{"MAC": "b"}, ""},
		{"unknown", "MAC=a;K8S_POD_NAME=web;K8S_POD_UID=7", []string{"MAC"}, nil, "unknown keys K8S_POD_NAME, K8S_POD_UID"},
		{"key in another case", "mac=a", []string{"MAC"}, nil, "unknown keys mac"},
		{"unknown, ignored", "IgnoreUnknown=1;K8S_POD_NAME=web;MAC=a", []string{"MAC"}, map[string]string{"MAC": "a"}, ""},
		{"ignored whatever the order", "K8S_POD_NAME=web;IgnoreUnknown=TRUE", nil, map[string]string{}, ""},
		{"not ignored", "K8S_POD_NAME=web;IgnoreUnknown=0", nil, nil, "unknown keys K8S_POD_NAME"},
		{"the last IgnoreUnknown counts", "A=b;IgnoreUnknown=true;IgnoreUnknown=false", nil, nil, "unknown keys A"},
		{"IgnoreUnknown with another value", "IgnoreUnknown=yes", nil, nil, `IgnoreUnknown is "yes"`},
		{"no pair", "MAC", []string{"MAC"}, nil, `invalid pair "MAC"`},
		{"no key", "=a", nil, nil, `invalid pair "=a"`},
		{"no pair, even if unknown ones are ignored", "IgnoreUnknown=1;x", nil, nil, `invalid pair "x"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Arguments(tt.args, tt.known...)
			if tt.err == "" {
				if err != nil || !maps.Equal(got, tt.want) {
					t.Errorf("Arguments(%q) = %v, %v; want %v", tt.args, got, err, tt.want)
				}
				return
			}
			var e *types.Error
			if !errors.As(err, &e) || e.Code != types.ErrInvalidEnvironmentVariables || e.Details == "" || !strings.Contains(e.Msg, tt.err) {
				t.Errorf("Arguments(%q): error %#v; want code 4, details, and %q", tt.args, err, tt.err)
			}
		})
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
