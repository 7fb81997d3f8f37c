"""An S3-compatible server on loopback, with one bucket."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

BUCKET = "passnet"


@contextmanager
def s3_server() -> Iterator[str]:
    """`s3://BUCKET`, which is there within the block, for this process and those that it starts. Skips the test where
    there is no client or no server."""
    s3fs = pytest.importorskip("s3fs", reason="needs an S3 client: pip install 'passnet[s3]'")
    server = pytest.importorskip("moto.server", reason="needs moto's server: pip install 'moto[server]'")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    running.start()
    host, port = running.get_host_and_port()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_ACCESS_KEY_ID", "nobody")
            patch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
            patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
            patch.setenv("AWS_ENDPOINT_URL_S3", f"http://{host}:{port}")
            s3fs.S3FileSystem.clear_instance_cache()
            fs = s3fs.S3FileSystem()
            fs.mkdir(BUCKET)
            yield f"s3://{BUCKET}"
            fs.invalidate_cache()
            fs.rm(BUCKET, recursive=True)  # the server's buckets are this process's, and outlive it
    finally:
        running.stop()
