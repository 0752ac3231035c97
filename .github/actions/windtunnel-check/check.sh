#!/bin/sh
# Plays scenarios with a windtunnel that has a plug-in of yours built in, checks what the scenarios expect, and compares
# with the same of another commit.
#
#   check.sh HEAD [BASE] -- SCENARIO…
#
# HEAD and BASE are programs (docs/plugins.md). The comparison is Markdown on standard output. The exit code is 1 where a
# scenario's expectations are not met, else the one of the first program that failed, else 0.
set -u
head=$1; shift
base=
if [ "${1:---}" != -- ]; then base=$1; shift; fi
[ "${1:-}" = -- ] && shift
[ $# -gt 0 ] || { echo "usage: check.sh HEAD [BASE] -- SCENARIO…" >&2; exit 2; }
head=$(command -v "$head") || { echo "check.sh: no program $head" >&2; exit 2; }
case $head in /*) ;; *) head=$PWD/$head ;; esac
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
fence='```'
result=0
for scenario; do
	name=$(basename "$scenario" .yaml)
	"$head" sim "$scenario" --outcomes "$dir/head" > "$dir/head.txt" 2>&1
	code=$?
	[ $code = 0 ] || [ $result = 1 ] || result=$code
	if [ $code = 0 ]; then verdict="as expected"; else verdict="**failed** (exit code $code)"; fi
	printf '### %s: %s\n\n' "$name" "$verdict"
	if [ $code != 0 ]; then
		printf '%s\n%s\n%s\n\n' "$fence" "$(tail -n 40 "$dir/head.txt")" "$fence"
	elif [ -n "$base" ]; then
		if ! "$base" sim "$scenario" --outcomes "$dir/base" > "$dir/base.txt" 2>&1; then
			printf 'The base commit cannot play it:\n\n%s\n%s\n%s\n\n' "$fence" "$(tail -n 10 "$dir/base.txt")" "$fence"
			continue
		fi
		comparison=$(cd "$dir" && "$head" compare base head 2>&1)
		printf '<details><summary>%s</summary>\n\n%s\n%s\n%s\n\n</details>\n\n' \
			"$(echo "$comparison" | head -n 1)" "$fence" "$comparison" "$fence"
	fi
done
exit $result
