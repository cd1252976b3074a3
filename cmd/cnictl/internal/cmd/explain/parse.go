package explain

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

var escapedQuote = regexp.MustCompile(`\\+"`)

// parse finds the message in a text, in which it may be a document in JSON, in a line of a log, escaped.
func parse(text string) *Explanation {
	text = strings.TrimSpace(text)
	e := &Explanation{Message: text, Findings: []Finding{}}
	if code, err := strconv.ParseUint(text, 10, 32); err == nil {
		e.Message = ""
		e.setCode(uint(code))
		return e
	}
	plain := strings.ReplaceAll(escapedQuote.ReplaceAllString(text, `"`), `\n`, "\n")
	if document, before := findDocument(text, plain); document != nil {
		e.Message, e.Details = strings.TrimSpace(before+document.Msg), document.Details
		e.setCode(document.Code)
		return e
	}
	e.Message = plain
	if m := statedCode.FindStringSubmatch(plain); m != nil {
		if code, err := strconv.ParseUint(m[1], 10, 32); err == nil {
			e.setCode(uint(code))
		}
	}
	return e
}

// statedCode is how cnictl prints a code.
var statedCode = regexp.MustCompile(`(?m)^\s*code:\s+(\d+)\b`)

// findDocument returns the first error document in one of the texts, and what libcni says before it about which plugin failed.
func findDocument(texts ...string) (document *types.Error, before string) {
	const most, longest = 1000, 64 << 10 // what a hostile text may cost
	for _, text := range texts {
		tried := 0
		for i := 0; i < len(text) && tried < most; i++ {
			if text[i] != '{' {
				continue
			}
			tried++
			var found types.Error
			if json.NewDecoder(strings.NewReader(text[i:min(len(text), i+longest)])).Decode(&found) != nil || found.Msg == "" && found.Code == 0 {
				continue
			}
			if before = failed.FindString(text[:i]); before != "" {
				before += ": "
			}
			return &found, before
		}
	}
	return nil, ""
}

func (e *Explanation) setCode(code uint) {
	e.Code, e.CodeMeans = code, codeMeans(code)
}

// codeMeans says what a code of the CNI specification means (1.1.0, section 5).
func codeMeans(code uint) string {
	meanings := map[uint]string{
		types.ErrIncompatibleCNIVersion:      "incompatible CNI version: the plugin does not know the configuration's cniVersion; lower that, or update the plugin",
		types.ErrUnsupportedField:            "unsupported field in the configuration: the message names the key and its value",
		types.ErrUnknownContainer:            "the container is unknown or does not exist: the runtime need not clean up with a DEL",
		types.ErrInvalidEnvironmentVariables: "invalid environment variables (CNI_COMMAND, CNI_CONTAINERID, CNI_NETNS, CNI_IFNAME …): whoever calls the plugin sets them wrongly",
		types.ErrIOFailure:                   "I/O failure: the plugin could not read its configuration from standard input, or a file",
		types.ErrDecodingFailure:             "failed to decode content: the configuration is no valid JSON, or a value has a wrong type",
		types.ErrInvalidNetworkConfig:        "invalid network configuration: the message says which key is wrong",
		types.ErrInvalidNetNS:                "invalid network namespace: CNI_NETNS names none, or the host's own",
		types.ErrTryAgainLater:               "try again later: something passes by itself, such as a lock or a lease that is asked for; the runtime should repeat the call",
		types.ErrPluginNotAvailable:          "plugin not available: the node lacks what the plugin needs; the details say what (from STATUS: no ADD would work)",
		types.ErrLimitedConnectivity:         "plugin not available, and containers that run may have limited connectivity (from STATUS)",
		types.ErrInternal:                    "internal error: something failed that the specification has no code for; the message says what",
	}
	switch meaning, known := meanings[code]; {
	case known:
		return meaning
	case code >= 100:
		return "a code of the plugin's own: its documentation says what it means"
	case code == 0:
		return "the plugin gave no code"
	}
	return "a code that the CNI specification keeps for later versions"
}
