package metrics

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/cnibox/cnibox/pkg/calllog"
	"github.com/cnibox/cnibox/pkg/operator/doctor"
	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/node"
)

var now = time.Date(2026, 3, 3, 12, 0, 0, 0, time.UTC)

func call(ago, took time.Duration, verb string, failed *types.Error) calllog.Call {
	return calllog.Call{Time: now.Add(-ago), Took: took, Verb: verb, Plugin: "bridge", Error: failed}
}

// source has something of everything.
func source() Source {
	return Source{
		Node: &node.Node{
			Networks: []*node.Network{
				{Name: "demo", Pools: []*node.Pool{{Subnet: "10.88.0.0/24", Size: 100, Used: 5, Gone: 2}, {Subnet: "10.88.0.0/24", Size: 50}, {Subnet: "fd00::/64", Size: 1 << 63, Used: 1}}},
				{Name: "bad\xffname"},
			},
			Attachments: []*node.Attachment{
				{Network: "demo", State: node.Alive, Ports: []node.Port{{Protocol: "tcp"}, {Protocol: "tcp"}, {Protocol: "udp"}}},
				{Network: "demo", State: node.Gone, Ports: []node.Port{{Protocol: "tcp"}}},
				{Network: "demo", State: node.Gone},
				{Network: "bad\xffname", State: node.Unknown},
			},
			Unowned: []node.Holding{{Plugin: "portmap"}, {Plugin: "portmap"}, {Plugin: "host-local"}},
			Unread:  []node.Unread{{What: "x"}},
		},
		Findings: []doctor.Finding{{Code: "pool-nearly-full", Severity: finding.Warning}, {Code: "pool-nearly-full", Severity: finding.Warning}, {Code: "plugin-missing", Severity: finding.Error}},
		Calls: []calllog.Call{
			call(2*time.Hour, time.Second, "ADD", nil), call(time.Hour+time.Second, time.Second, "ADD", nil),
			call(time.Hour, 3*time.Millisecond, "ADD", nil), call(time.Minute, 70*time.Second, "ADD", &types.Error{Code: 11}), call(0, 15*time.Millisecond, "DEL", nil),
			call(-time.Minute, time.Second, "ADD", nil), // somebody has set the clock
		},
		LogIsOn: true, Time: now,
	}
}

func text(t *testing.T, s Source) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, s); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestFigures(t *testing.T) {
	got := text(t, source())
	for _, want := range []string{
		`cnibox_build_info{goversion="go`,
		`cnibox_scrape_timestamp_seconds 1.7725392e+09`,
		`cnibox_unread_sources 1`,
		`cnibox_pool_addresses{network="demo",subnet="10.88.0.0/24"} 150`,
		`cnibox_pool_addresses{network="demo",subnet="fd00::/64"} 9.223372036854776e+18`,
		`cnibox_pool_addresses_used{network="demo",subnet="10.88.0.0/24"} 5`,
		`cnibox_pool_addresses_leaked{network="demo",subnet="10.88.0.0/24"} 2`,
		`cnibox_attachments{network="demo",state="alive"} 1`,
		`cnibox_attachments{network="demo",state="gone"} 2`,
		`cnibox_attachments{network="demo",state="unknown"} 0`,
		`cnibox_attachments{network="bad?name",state="unknown"} 1`,
		`cnibox_published_ports{network="demo",protocol="tcp"} 2`,
		`cnibox_published_ports{network="demo",protocol="udp"} 1`,
		`cnibox_unowned_things{plugin="portmap"} 2`,
		`cnibox_findings{code="pool-nearly-full",severity="warning"} 2`,
		`cnibox_findings{code="plugin-missing",severity="error"} 1`,
		`cnibox_log_enabled 1`,
		`cnibox_log_oldest_call_timestamp_seconds 1.772532e+09`,
		`cnibox_last_hour_calls{plugin="bridge",verb="ADD"} 2`,
		`cnibox_last_hour_calls{plugin="bridge",verb="DEL"} 1`,
		`cnibox_last_hour_call_errors{code="11",plugin="bridge",verb="ADD"} 1`,
		`cnibox_last_hour_call_duration_seconds_bucket{plugin="bridge",verb="ADD",le="0.002"} 0`,
		`cnibox_last_hour_call_duration_seconds_bucket{plugin="bridge",verb="ADD",le="0.005"} 1`,
		`cnibox_last_hour_call_duration_seconds_bucket{plugin="bridge",verb="ADD",le="60"} 1`,
		`cnibox_last_hour_call_duration_seconds_bucket{plugin="bridge",verb="ADD",le="+Inf"} 2`,
		`cnibox_last_hour_call_duration_seconds_sum{plugin="bridge",verb="ADD"} 70.003`,
	} {
		if !strings.Contains("\n"+got, "\n"+want) {
			t.Errorf("%s\nis not in\n%s", want, got)
		}
	}
}

// TestNothing: a node of which nothing is known has figures, too.
func TestNothing(t *testing.T) {
	got := text(t, Source{Node: &node.Node{}, Time: now})
	if !strings.Contains(got, "cnibox_unread_sources 0\n") || !strings.Contains(got, "cnibox_log_enabled 0\n") || strings.Contains(got, "oldest") {
		t.Errorf("got\n%s", got)
	}
}

// TestForm: Prometheus can read it, and its linter has nothing to say.
func TestForm(t *testing.T) {
	got := text(t, source())
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(got))
	if err != nil || len(families) < 15 {
		t.Errorf("%d families, error %v", len(families), err)
	}
	problems, err := promlint.New(strings.NewReader(got)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("problems %v, error %v", problems, err)
	}
}

// TestWriteFile replaces the file as a whole, for all to read.
func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "cnibox.prom")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, source()); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil || string(content) != text(t, source()) {
		t.Errorf("error %v, the file has\n%s", err, content)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o644 {
		t.Errorf("error %v, mode %v", err, info.Mode())
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("error %v, there are %v", err, files)
	}
	if err := WriteFile(filepath.Join(dir, "no", "cnibox.prom"), source()); err == nil {
		t.Error("a directory that is not there was written to")
	}
}
