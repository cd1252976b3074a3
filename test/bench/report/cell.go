package report

import "fmt"

// show returns a cell of one figure's summary.
func show(metric string, format func(Summary) string) func(*Results, Point) string {
	return func(r *Results, row Point) string {
		row.Metric = metric
		figure, measured := r.Find(row)
		if !measured {
			return none
		}
		return format(figure.Summary)
	}
}

// latency shows median and 95th percentile.
func latency(metric string) func(*Results, Point) string {
	return show(metric, func(s Summary) string { return number(s.Median) + " / " + number(s.P95) })
}

func milliseconds(metric string) func(*Results, Point) string {
	return show(metric, func(s Summary) string { return number(s.Median) })
}

// median0 shows a median that is a count.
func median0(metric string) func(*Results, Point) string {
	return show(metric, func(s Summary) string { return fmt.Sprintf("%.0f", s.Median) })
}

func mebibytes(metric string) func(*Results, Point) string {
	return show(metric, func(s Summary) string { return number(s.Median / (1 << 20)) })
}

func megabytes(metric string) func(*Results, Point) string {
	return show(metric, func(s Summary) string { return number(s.Median / 1e6) })
}

// failures shows how many calls failed, nothing when none did.
func failures(metric string) func(*Results, Point) string {
	return func(r *Results, row Point) string {
		row.Metric = metric
		figure, _ := r.Find(row)
		if figure.Median == 0 {
			return ""
		}
		return fmt.Sprintf("%.0f", figure.Median)
	}
}

// times shows how many times as fast as the reference plugins.
func times(metric string) func(*Results, Point) string {
	return func(r *Results, row Point) string {
		row.Metric = metric
		reference := row
		reference.Plugins = Reference
		quotient, measured := r.Ratio(reference, row)
		if !measured {
			return none
		}
		return faster.format(quotient)
	}
}

// startRatio shows a start as a multiple of the empty Go program's.
func startRatio(r *Results, row Point) string {
	row.Metric = "VERSION"
	quotient, measured := r.Ratio(row, Point{"start", "nothing", EmptyGo, "VERSION"})
	if !measured {
		return none
	}
	return atMost.format(quotient)
}
