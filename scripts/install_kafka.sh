#!/bin/sh
# Kafka for tests/cluster/: the jars that tests/cluster/kafka.pom.xml names, 43 MB, once a machine.
# As root on Debian, Java and Maven are installed where there are none.
set -eu
pom="$(dirname "$0")/../tests/cluster/kafka.pom.xml"
version="$(sed -n '/kafka_2.13/,/version/s:.*<version>\(.*\)</version>.*:\1:p' "$pom")"
home="${XDG_CACHE_HOME:-$HOME/.cache}/hanzo-pubsub"
jars="$home/kafka-$version"
if ! command -v java >/dev/null || { [ ! -d "$jars" ] && ! command -v mvn >/dev/null; }; then
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "Java 17 or later and Maven are needed for the tests with Kafka: sudo apt-get install --no-install-recommends default-jre-headless maven" >&2
        exit 1
    fi
    echo "setup: Java and Maven, from the system's packages"
    export DEBIAN_FRONTEND=noninteractive
    install() { apt-get install -y --no-install-recommends default-jre-headless maven; }
    install || { apt-get update && install; }
fi
if [ -d "$jars" ]; then exit 0; fi
echo "setup: Kafka $version into $jars"
mkdir -p "$home"
# Complete or not there: what is cut short is not taken for a broker.
fresh="$(mktemp -d "$home/kafka.XXXXXX")"
trap 'rm -rf "$fresh"' EXIT
fetch() { mvn --batch-mode --quiet --file "$pom" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$fresh"; }
# A mirror may be busy for a moment.
fetch || { sleep 5 && fetch; } || { sleep 20 && fetch; }
chmod 755 "$fresh"
# Unless another set-up was first.
[ -d "$jars" ] || mv "$fresh" "$jars"
