package ui

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// Grid is a table for people: columns by spaces alone, so that it can be cut and searched, with a bold head on a terminal.
type Grid struct{ table.Writer }

// NewGrid makes a table, with a head unless there is none.
func NewGrid(head ...string) Grid {
	g := Grid{table.NewWriter()}
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = text.FormatDefault
	style.Color.Header = text.Colors{text.Bold}
	g.SetStyle(style)
	g.SuppressTrailingSpaces()
	if head != nil {
		g.AppendHeader(row(head))
	}
	return g
}

// AlignRight aligns columns of numbers, counted from 1.
func (g Grid) AlignRight(columns ...int) {
	var configs []table.ColumnConfig
	for _, c := range columns {
		configs = append(configs, table.ColumnConfig{Number: c, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	g.SetColumnConfigs(configs)
}

// Add adds a row. Text of containers and files has to be harmless before.
func (g Grid) Add(cells ...string) { g.AppendRow(row(cells)) }

// Print prints the table.
func (g Grid) Print(w io.Writer) {
	if g.Length() > 0 {
		fmt.Fprintln(w, g.Render())
	}
}

func row(cells []string) (r table.Row) {
	for _, c := range cells {
		r = append(r, c)
	}
	return r
}

// Harmless returns a text that somebody else wrote without what moves a terminal's cursor or changes its colours.
func Harmless(s string) string {
	return strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return '?'
		}
		return c
	}, s)
}

// Colours, of a word that says how things are.
var (
	Good = text.Colors{text.FgGreen}
	Weak = text.Colors{text.FgYellow}
	Bad  = text.Colors{text.FgRed}
)

// HasColours reports whether there are colours: then a person looks at a terminal.
func HasColours() bool { return Good.Sprint(".") != "." }

// setColours allows colours where a person looks: on a terminal, unless NO_COLOR is set (https://no-color.org).
func setColours(stdout io.Writer) {
	f, isFile := stdout.(*os.File)
	if isFile && term.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" {
		text.EnableColors()
		return
	}
	text.DisableColors()
}
