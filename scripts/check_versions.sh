#!/bin/sh
# Runs the tests that depend on dependencies. `check_versions.sh lowest` uses the lowest declared versions,
# `check_versions.sh newest` the newest pre-releases, both on the newest Python of this machine. It tests the SDK
# alone first, and then with the server, which needs newer versions of shared dependencies.
set -eu
cd "$(dirname "$0")/.."
bin=.venv/bin
python=$bin/python
case ${1-} in
  lowest) resolution='--resolution lowest-direct' bounds='' ;;
  newest)
    resolution='--resolution highest --prerelease allow'
    # The development releases of httpx 1.0 lack transports and most of the API of 0.28, and break the import of
    # httpx-sse and respx. Try them again when these two support them.
    bounds='httpx<1'
    if [ -x "$bin"/../newest/bin/python ]; then python=$bin/../newest/bin/python; fi
    ;;
  *) echo "usage: $0 lowest|newest" >&2; exit 2 ;;
esac
venv=.venv-$1
pins=requirements/constraints.txt
# Pin the test tools: only the packages that users install are resolved to their lowest versions.
tools=$(grep -E '^(pytest|pytest-asyncio|pytest-timeout|pytest-xdist|hypothesis|respx|trustme|jsonschema)==' "$pins")

# install FOLDER PACKAGES…
install() {
  folder=$1
  shift
  [ -x "$folder/bin/python" ] || "$bin/uv" venv --quiet --python "$python" "$folder"
  # shellcheck disable=SC2086 # one word per pin, and an option
  "$bin/uv" pip install --quiet --python "$folder/bin/python" $resolution --upgrade \
    $tools $bounds "$@"
}

# run FOLDER TESTS…
run() {
  folder=$1
  shift
  "$folder/bin/python" -m pytest -p no:cacheprovider -q "$@"
}

install "$venv"/sdk --editable '.[cli,otel,signed,speed,tokens]'
run "$venv"/sdk tests/python/test_websocket.py tests/python/test_endless_heads.py tests/python/test_codec.py \
  tests/python/test_model.py tests/python/test_options.py tests/python/rest tests/python/sse

install "$venv"/server --editable '.[cli,otel,signed,speed,tokens]' --editable 'server-mock[kafka,otel,workers]'
run "$venv"/server tests/python/test_token_signer.py tests/python/test_webhooks.py tests/server/test_jwks.py tests/server/test_access.py \
  tests/server/test_authenticators.py tests/server/test_api_keys.py tests/server/test_dev_tokens.py \
  tests/server/test_identity.py tests/server/hub/test_auth.py tests/server/websocket \
  tests/server/test_codec.py tests/server/test_config.py tests/server/test_metrics.py \
  tests/server/test_sse.py tests/cluster/test_retention.py
