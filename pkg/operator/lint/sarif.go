package lint

import (
	"path/filepath"
	"strings"

	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"

	"github.com/cnibox/cnibox/pkg/operator/finding"
)

// Manual is the page that explains the codes.
const Manual = "https://github.com/cnibox/cnibox/blob/main/docs/operate/lint.md"

// SARIF returns findings in the form that code hosts and editors read. version is cnictl's.
func SARIF(findings []Finding, version string) (*sarif.Report, error) {
	run := sarif.NewRunWithInformationURI("cnictl lint", Manual).WithColumnKind("unicodeCodePoints")
	run.Tool.Driver.WithVersion(version)
	for _, c := range Codes() {
		run.AddRule(c.Name).WithDescription(c.Meaning).WithHelpURI(Manual + "#codes").
			WithDefaultConfiguration(sarif.NewReportingConfiguration().WithLevel(level(c.Severity)))
	}
	for _, f := range findings {
		uri := filepath.ToSlash(f.File)
		if f.File == "-" {
			uri = "stdin"
		} else if filepath.IsAbs(f.File) {
			uri = "file://" + strings.ReplaceAll(uri, " ", "%20")
		}
		text := f.Summary
		if f.Remedy != "" {
			text += ". Write " + f.Remedy
		}
		region := sarif.NewRegion().WithStartLine(f.Line).WithStartColumn(f.Column)
		where := sarif.NewPhysicalLocation().WithArtifactLocation(sarif.NewSimpleArtifactLocation(uri)).WithRegion(region)
		run.AddDistinctArtifact(uri)
		run.CreateResultForRule(f.Code).WithLevel(level(f.Severity)).WithMessage(sarif.NewTextMessage(text)).
			AddLocation(sarif.NewLocationWithPhysicalLocation(where))
	}
	report := sarif.NewReport().AddRun(run)
	return report, run.DedupeArtifacts()
}

// level is what SARIF calls a severity.
func level(s finding.Severity) string {
	if s == finding.Info {
		return "note"
	}
	return string(s)
}
