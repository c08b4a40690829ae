# Sourced by steps that download. Certificates and index settings belong to whoever runs
# the build: they enter as secrets and stay in no layer.
if [ -s /dev/stackforge/ca ]; then
    SSL_CERT_FILE=/dev/stackforge/ca
    PIP_CERT=$SSL_CERT_FILE
    REQUESTS_CA_BUNDLE=$SSL_CERT_FILE
    CURL_CA_BUNDLE=$SSL_CERT_FILE
    GIT_SSL_CAINFO=$SSL_CERT_FILE
    export SSL_CERT_FILE PIP_CERT REQUESTS_CA_BUNDLE CURL_CA_BUNDLE GIT_SSL_CAINFO
fi
if [ -s /dev/stackforge/index ]; then
    . /dev/stackforge/index
fi
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore UV_HTTP_TIMEOUT=300 UV_LINK_MODE=copy UV_CACHE_DIR=/dev/stackforge/uv UV_CREDENTIALS_DIR=/dev/stackforge/credentials UV_NO_PROGRESS=1
