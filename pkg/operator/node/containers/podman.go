package containers

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
)

// askPodman lists the containers that run, those of its pods too.
func askPodman(ctx context.Context, socket string) (list []Container, err error) {
	const url, longest = "http://podman/v4.0.0/libpod/containers/json?all=true", 64 << 20
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", url, response.Status)
	}
	var containers []struct {
		ID    string `json:"Id"`
		Names []string
		State string
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, longest)).Decode(&containers); err != nil {
		return nil, fmt.Errorf("GET %s: %w", url, err)
	}
	over := []string{"configured", "exited", "stopped", "dead"} // before its network is made, or after it was taken away
	for _, c := range containers {
		if !slices.Contains(over, c.State) {
			list = append(list, Container{ID: c.ID, Name: strings.Join(c.Names, " ")})
		}
	}
	return list, nil
}
