#!/usr/bin/env bash
# Checks the scripts and styles of pages with prettier, eslint and tsc --checkJs; --write formats them first.
# Skips with a message where npm is missing or cannot fetch these.
set -euo pipefail
cd "$(dirname "$0")"
if ! cmp -s package.json node_modules/.installed; then
  if ! command -v npm >/dev/null || ! npm install --no-audit --no-fund --no-package-lock >/dev/null 2>&1; then
    echo "npm or its packages cannot be had: the scripts of pages are not checked." >&2
    exit 0
  fi
  cp package.json node_modules/.installed
fi
bin=node_modules/.bin
files=("../../src/flowveil/published/page/**/*.mjs" "../../src/flowveil/published/page/*.css")
files+=("../../src/flowveil/apps/workbench/static/*.mjs" "../../src/flowveil/apps/workbench/static/*.css")
if [ "${1:-}" = --write ]; then
  "$bin/prettier" --log-level warn --write "${files[@]}"
fi
"$bin/prettier" --log-level warn --check "${files[@]}"
(cd ../.. && tools/pages/$bin/eslint --config tools/pages/eslint.config.mjs \
  src/flowveil/published/page src/flowveil/apps/workbench/static)
"$bin/tsc" -p tsconfig.json
