package calllog

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// FuzzRead reads a log with anything in it: a whole line behind it is found, and what is read can be written and read again.
func FuzzRead(f *testing.F) {
	c := full()
	whole := c.line()
	f.Add(whole)
	f.Add(append(bytes.Clone(whole[:100]), whole...))
	f.Add(append(head(DefaultSize), whole...))
	f.Add([]byte("{\"time\":\"\n\n{}\n[]\n{\"time\":\"2026-11-17T09:12:01Z\",\"verb\":1,\"plugin\":[],\"error\":7}\n"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, before []byte) {
		text := append(append(bytes.Clone(before), '\n'), whole...)
		if err := os.WriteFile(filepath.Join(dir, current), text, 0o600); err != nil {
			t.Fatal(err)
		}
		all, torn, err := Read(dir)
		if err != nil || torn > bytes.Count(text, []byte("\n")) {
			t.Fatalf("%d torn lines, %v", torn, err)
		}
		found := false
		for _, got := range all {
			found = found || cmp.Equal(got, c)
			line := got.line()
			if _, ok := parse(line); !ok || !json.Valid(line) || len(line) > maxLine {
				t.Errorf("read and written again: %s", line)
			}
		}
		if !found {
			t.Errorf("the whole line is not among %d", len(all))
		}
	})
}

// FuzzTraceparent compares with OpenTelemetry's reading, which takes a "-" at the end, and of version 00 no flags that it does not know.
func FuzzTraceparent(f *testing.F) {
	const ids = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"
	for _, text := range []string{
		"", "00-" + ids, "00-" + ids + "-01", "00-" + ids + "-ff", "01-" + ids + "-01", "cc-" + ids + "-01-more", "ff-" + ids + "-01", "00-" + ids + "-01-more",
		"00-" + ids + "-1", "00-" + ids + "-0g", "0-" + ids + "-01", "00-" + strings.ToUpper(ids) + "-01", "00-" + ids[1:] + "-01", "00-0" + ids + "-01",
		"00-" + ids[:48] + "-01", "00-" + ids[:33] + "0000000000000000-01", "00-00000000000000000000000000000000" + ids[32:] + "-01", " 00-" + ids + "-01", "00_" + ids + "-01",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		traceID, spanID := parseTraceparent(text)
		ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": text})
		theirs := trace.SpanContextFromContext(ctx)
		if !theirs.IsValid() {
			if traceID != "" && (text[:2] != "00" || text[53:] < "03") {
				t.Errorf("%q: read %s and %s, OpenTelemetry nothing", text, traceID, spanID)
			}
			return
		}
		if text[:2] == "00" {
			traceID, spanID = parseTraceparent(strings.TrimSuffix(text, "-"))
		}
		if traceID != theirs.TraceID().String() || spanID != theirs.SpanID().String() {
			t.Errorf("%q: read %q and %q, OpenTelemetry %s and %s", text, traceID, spanID, theirs.TraceID(), theirs.SpanID())
		}
	})
}
