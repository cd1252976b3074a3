// Package report keeps what the benchmark measured, and shows it: as JSON, as tables beside the marks it should reach, and
// as plots.
package report
