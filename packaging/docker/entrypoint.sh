#!/bin/sh
# Starts a broker in a container from its environment, as the image apache/kafka does.
#
# KAFKA_* and TIDELOG_* set keys of server.properties; arguments of the form KAFKA_X=value do, too.
# A file /mnt/shared/config/server.properties is read first. Other arguments go to `tidelog serve`.
set -eu

CONFIG=${CONFIG_DIR:-/mnt/shared/config}/server.properties
DATA=${DATA_DIR:-/var/lib/kafka/data}
SECRETS=${SECRETS_DIR:-/etc/kafka/secrets}

fail() {
    echo "entrypoint: $1" >&2
    exit 1
}

# Arguments that set variables, and the rest.
count=$#
while [ "$count" -gt 0 ]; do
    argument=$1
    shift
    count=$((count - 1))
    case $argument in
        KAFKA_*=* | TIDELOG_*=*) export "${argument?}" ;;
        *) set -- "$@" "$argument" ;;
    esac
done

if [ -f "$CONFIG" ]; then
    set -- --config "$CONFIG" "$@"
else
    # Without a file: all interfaces, as a client on the machine of the container reaches them.
    if [ -z "${KAFKA_LISTENERS:-}${TIDELOG_LISTENERS:-}${KAFKA_ADVERTISED_LISTENERS:-}" ]; then
        export KAFKA_LISTENERS="PLAINTEXT://:9092"
        export KAFKA_ADVERTISED_LISTENERS="PLAINTEXT://localhost:9092"
    fi
    if [ -z "${KAFKA_LOG_DIRS:-}${TIDELOG_LOG_DIRS:-}" ]; then
        export KAFKA_LOG_DIRS="$DATA"
    fi
fi

# Listeners have the ports that are advertised, on all interfaces.
if [ -z "${KAFKA_LISTENERS:-}" ] && [ -n "${KAFKA_ADVERTISED_LISTENERS:-}" ]; then
    KAFKA_LISTENERS=$(printf '%s' "$KAFKA_ADVERTISED_LISTENERS" | sed -e 's|://[^:]*:|://0.0.0.0:|g')
    export KAFKA_LISTENERS
fi

# secret VARIABLE FILE: the file's text becomes the variable.
secret() {
    [ -n "$2" ] || fail "$3 is not set"
    [ -r "$SECRETS/$2" ] || fail "$SECRETS/$2 cannot be read"
    value=$(cat "$SECRETS/$2")
    export "$1=$value"
}

store() {
    [ -r "$SECRETS/$2" ] || fail "$SECRETS/$2 cannot be read"
    export "$1=$SECRETS/$2"
}

case ${KAFKA_ADVERTISED_LISTENERS:-} in
    *SSL://*)
        if [ -n "${KAFKA_SSL_KEYSTORE_FILENAME:-}" ]; then
            store KAFKA_SSL_KEYSTORE_LOCATION "$KAFKA_SSL_KEYSTORE_FILENAME"
            secret KAFKA_SSL_KEY_PASSWORD "${KAFKA_SSL_KEY_CREDENTIALS:-}" KAFKA_SSL_KEY_CREDENTIALS
            secret KAFKA_SSL_KEYSTORE_PASSWORD "${KAFKA_SSL_KEYSTORE_CREDENTIALS:-}" \
                KAFKA_SSL_KEYSTORE_CREDENTIALS
        fi
        if [ -n "${KAFKA_SSL_TRUSTSTORE_FILENAME:-}" ]; then
            store KAFKA_SSL_TRUSTSTORE_LOCATION "$KAFKA_SSL_TRUSTSTORE_FILENAME"
            secret KAFKA_SSL_TRUSTSTORE_PASSWORD "${KAFKA_SSL_TRUSTSTORE_CREDENTIALS:-}" \
                KAFKA_SSL_TRUSTSTORE_CREDENTIALS
        fi
        ;;
esac

if [ -n "${CLUSTER_ID:-}" ]; then
    echo "entrypoint: CLUSTER_ID has no effect, the cluster chooses its id" >&2
fi

exec tidelog serve --kafka-env "$@"
