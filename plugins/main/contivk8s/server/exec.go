package server

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/containernetworking/cni/pkg/invoke"
)

// through calls plugins with another path of the container's namespace than the one that is kept: that of our open file, where nothing, or
// something else, is at the other from here. Their results have the path that is kept.
type through struct {
	invoke.Exec
	recorded, open string
}

func (t through) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	environ = append(slices.Clip(environ), "CNI_NETNS="+t.open) // of two the last one counts
	out, err := t.Exec.ExecPlugin(ctx, path, withPrevResult(stdin, t.recorded, t.open), environ)
	if err != nil {
		return nil, err
	}
	return withSandbox(out, t.open, t.recorded), nil
}

// withPrevResult is withSandbox for the previous result in a configuration.
func withPrevResult(config []byte, from, to string) []byte {
	var keys map[string]json.RawMessage
	if json.Unmarshal(config, &keys) != nil || keys["prevResult"] == nil {
		return config
	}
	keys["prevResult"] = withSandbox(keys["prevResult"], from, to)
	return marshal(keys)
}

// withSandbox returns a result in which the interfaces of one namespace have another path of it.
func withSandbox(result []byte, from, to string) []byte {
	var keys map[string]json.RawMessage
	var interfaces []map[string]json.RawMessage
	if json.Unmarshal(result, &keys) != nil || json.Unmarshal(keys["interfaces"], &interfaces) != nil {
		return result
	}
	for _, i := range interfaces {
		var sandbox string
		if json.Unmarshal(i["sandbox"], &sandbox) == nil && sandbox == from && from != "" {
			i["sandbox"] = marshal(to)
		}
	}
	keys["interfaces"] = marshal(interfaces)
	return marshal(keys)
}

// marshal is json.Marshal for what has been JSON before.
func marshal(value any) json.RawMessage {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return text
}
