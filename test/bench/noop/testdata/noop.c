// A CNI plugin that does nothing: for ADD it hands on the result it got, or an
// empty one. What libcni and starting a process cost by themselves.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char config[1 << 20];

static void answer(const char *text, size_t length) {
	if (write(1, text, length) != (ssize_t)length)
		exit(1);
}

int main(void) {
	static const char key[] = "\"prevResult\":";
	static const char none[] = "{\"cniVersion\":\"1.0.0\"}";
	size_t length = 0;
	ssize_t n;

	while ((n = read(0, config + length, sizeof config - 1 - length)) > 0)
		length += n;
	if (n < 0)
		return 1;
	const char *command = getenv("CNI_COMMAND");
	if (!command || strcmp(command, "ADD"))
		return 0;
	const char *start = strstr(config, key);
	if (!start) {
		answer(none, sizeof none - 1);
		return 0;
	}
	// The result is an object without braces in its strings.
	start += sizeof key - 1;
	const char *end = start;
	for (int depth = 0; *end; end++) {
		depth += (*end == '{') - (*end == '}');
		if (depth == 0)
			break;
	}
	answer(start, end - start + 1);
	return 0;
}
