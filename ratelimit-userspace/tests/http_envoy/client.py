"""Asks a rate-limit service as Envoy does, with the messages that gRPC's authors generated from Envoy's
protobufs. Usage: client.py ADDRESS CASE

The service limits `user` in the domain `api` to 3 an hour, each value apart; `free` is unlimited, and
`watched` is a shadow rule that would deny everything.
"""

import sys

import grpc
from envoy.extensions.common.ratelimit.v3 import ratelimit_pb2
from envoy.service.ratelimit.v3 import rls_pb2, rls_pb2_grpc
from envoy.type.v3 import ratelimit_unit_pb2
from google.protobuf import wrappers_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

Response = rls_pb2.RateLimitResponse
OK, OVER_LIMIT = Response.OK, Response.OVER_LIMIT
TIMEOUT = 20


def descriptor(key, value, hits=None, limit=None):
    entries = [ratelimit_pb2.RateLimitDescriptor.Entry(key=key, value=value)]
    message = ratelimit_pb2.RateLimitDescriptor(entries=entries)
    if hits is not None:
        message.hits_addend.CopyFrom(wrappers_pb2.UInt64Value(value=hits))
    if limit is not None:
        message.limit.requests_per_unit, message.limit.unit = limit
    return message


def request(*descriptors, domain="api", hits_addend=0):
    return rls_pb2.RateLimitRequest(domain=domain, descriptors=descriptors, hits_addend=hits_addend)


class Client:
    def __init__(self, channel):
        self.channel = channel
        self.stub = rls_pb2_grpc.RateLimitServiceStub(channel)

    def ask(self, *descriptors, **rest):
        return self.stub.ShouldRateLimit(request(*descriptors, **rest), timeout=TIMEOUT)

    def refusal(self, *descriptors, **rest):
        try:
            self.ask(*descriptors, **rest)
        except grpc.RpcError as error:
            return error.code(), error.details()
        raise AssertionError("it was not refused")


def equal(have, want):
    assert have == want, f"{have!r} is not {want!r}"


def statuses(client):
    answer = client.ask(
        descriptor("user", "s"), descriptor("free", "s"), descriptor("watched", "s"), descriptor("none", "s")
    )
    equal(answer.overall_code, OK)
    user, free, watched, none = answer.statuses
    limit = user.current_limit
    equal((limit.name, limit.requests_per_unit, limit.unit), ("per-user", 3, Response.RateLimit.HOUR))
    equal((user.code, user.limit_remaining), (OK, 2))
    assert 3590 <= user.duration_until_reset.ToSeconds() <= 3600, user.duration_until_reset
    equal((free.code, free.HasField("current_limit"), free.limit_remaining), (OK, False, 2**32 - 1))
    equal(watched, none)
    equal((none.code, none.HasField("current_limit"), none.HasField("quota")), (OK, False, False))
    equal(answer.HasField("quota"), False)


def over_limit(client):
    codes = [client.ask(descriptor("user", "o")).overall_code for _ in range(5)]
    equal(codes, [OK, OK, OK, OVER_LIMIT, OVER_LIMIT])
    answer = client.ask(descriptor("free", "o"), descriptor("user", "o"))
    equal(answer.overall_code, OVER_LIMIT)
    equal([status.code for status in answer.statuses], [OK, OVER_LIMIT])
    headers = {header.key.lower(): header.value for header in answer.response_headers_to_add}
    equal(headers["x-ratelimit-limit"], "3")
    equal(headers["x-ratelimit-remaining"], "0")
    equal(headers["content-type"], "application/problem+json")
    assert 3590 <= int(headers["x-ratelimit-reset"]) <= 3600, headers
    assert 3590 <= int(headers["retry-after"]) <= 3600, headers
    equal(headers["ratelimit-policy"], '"per-user";q=3;w=3600')
    assert b'"per-user"' in answer.raw_body, answer.raw_body


def allowed_headers(client):
    answer = client.ask(descriptor("user", "a"))
    headers = {header.key.lower(): header.value for header in answer.response_headers_to_add}
    equal(headers["x-ratelimit-limit"], "3")
    equal(headers["x-ratelimit-remaining"], "2")
    # These would reach the client on a response of the upstream's own.
    equal([name for name in ("retry-after", "content-type") if name in headers], [])
    equal(answer.raw_body, b"")


def hits(client):
    remaining = lambda *asked, **rest: client.ask(*asked, **rest).statuses[0].limit_remaining
    equal(remaining(descriptor("user", "h"), hits_addend=2), 1)
    equal(remaining(descriptor("user", "h", hits=0)), 1)
    equal(remaining(descriptor("user", "h", hits=0), hits_addend=2), 1)
    equal(client.ask(descriptor("user", "h"), hits_addend=2).overall_code, OVER_LIMIT)
    equal(remaining(descriptor("user", "h", hits=1), hits_addend=2), 0)
    equal(client.ask(descriptor("user", "i"), hits_addend=2**32 - 1).overall_code, OVER_LIMIT)
    equal(client.ask(descriptor("user", "i", hits=2**64 - 1)).overall_code, OVER_LIMIT)
    equal(remaining(descriptor("user", "i")), 2)


def overrides(client):
    units = ratelimit_unit_pb2.RateLimitUnit
    for name, unit in units.items():
        asked = descriptor("user", f"override {name}", limit=(2, unit))
        if unit == units.Value("UNKNOWN"):
            code, details = client.refusal(asked)
            equal(code, grpc.StatusCode.INVALID_ARGUMENT)
            assert details.startswith("descriptor 1 (user) brings a limit whose unit is 0"), details
            continue
        status = client.ask(asked).statuses[0]
        limit = status.current_limit
        equal((limit.requests_per_unit, Response.RateLimit.Unit.Name(limit.unit)), (2, name))
        equal((status.code, status.limit_remaining), (OK, 1))
    for unit in [-1, 7, 8, 99, 2**31 - 1, -(2**31)]:
        code, details = client.refusal(descriptor("free", "x"), descriptor("user", "x", limit=(2, unit)))
        equal(code, grpc.StatusCode.INVALID_ARGUMENT)
        assert f"descriptor 2 (user) brings a limit whose unit is {unit};" in details, details
    equal(client.ask(descriptor("user", "b", limit=(0, units.Value("DAY")))).overall_code, OVER_LIMIT)


def mistakes(client):
    invalid = grpc.StatusCode.INVALID_ARGUMENT
    equal(client.refusal(descriptor("a", "b"), domain=""), (invalid, "rate limit domain must not be empty"))
    equal(client.refusal(), (invalid, "rate limit descriptor list must not be empty"))
    equal(client.refusal(*[descriptor("a", "b")] * 65)[0], invalid)
    equal(client.ask(descriptor("a", "b"), domain="nobody's").overall_code, OK)
    for path in ["/envoy.service.ratelimit.v3.RateLimitService/Other", "/other.Service/Method"]:
        try:
            client.channel.unary_unary(path)(b"", timeout=TIMEOUT)
            raise AssertionError(path)
        except grpc.RpcError as error:
            equal(error.code(), grpc.StatusCode.UNIMPLEMENTED)
    method = client.channel.unary_unary("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
    for garbage in [b"\xff" * 100, b"\x0a\xff\xff\xff\xff\x0f", b"\x12\x05\x0a\x03\x0a\x01\xff"]:
        try:
            method(garbage, timeout=TIMEOUT)
            raise AssertionError(garbage)
        except grpc.RpcError as error:
            assert error.code() in (grpc.StatusCode.INTERNAL, invalid), error


def large(client):
    code, _ = client.refusal(descriptor("user", "v" * 1_000_000))
    assert code in (grpc.StatusCode.OUT_OF_RANGE, grpc.StatusCode.RESOURCE_EXHAUSTED), code
    equal(client.ask(descriptor("user", "v" * 8192)).overall_code, OK)


def many_at_once(client):
    calls = [
        client.stub.ShouldRateLimit.future(request(descriptor("user", f"m{number % 500}")), timeout=TIMEOUT)
        for number in range(2_000)
    ]
    codes = [call.result().overall_code for call in calls]
    equal((codes.count(OK), codes.count(OVER_LIMIT)), (1_500, 500))


def last_unit(client):
    """Only one of many that ask at once gets the last unit."""
    client.ask(descriptor("user", "l"), hits_addend=2)
    calls = [
        client.stub.ShouldRateLimit.future(request(descriptor("user", "l")), timeout=TIMEOUT)
        for _ in range(200)
    ]
    codes = [call.result().overall_code for call in calls]
    equal((codes.count(OK), codes.count(OVER_LIMIT)), (1, 199))


def health(client):
    stub = health_pb2_grpc.HealthStub(client.channel)
    serving = health_pb2.HealthCheckResponse.SERVING
    for service in ["", "envoy.service.ratelimit.v3.RateLimitService", "ratelimit"]:
        asked = health_pb2.HealthCheckRequest(service=service)
        equal(stub.Check(asked, timeout=TIMEOUT).status, serving)
    watch = stub.Watch(health_pb2.HealthCheckRequest(), timeout=TIMEOUT)
    equal(next(watch).status, serving)
    watch.cancel()
    try:
        stub.Check(health_pb2.HealthCheckRequest(service="other"), timeout=TIMEOUT)
        raise AssertionError("an unknown service is healthy")
    except grpc.RpcError as error:
        equal(error.code(), grpc.StatusCode.NOT_FOUND)


CASES = [
    statuses, over_limit, allowed_headers, hits, overrides, mistakes, large, many_at_once, last_unit, health,
]

if __name__ == "__main__":
    address, case = sys.argv[1:]
    # Over a Unix socket this gRPC sends the socket's path, percent-encoded, for an authority, unless told
    # another; the server's HTTP/2 takes no `%` there.
    options = [("grpc.default_authority", "localhost")] if address.startswith("unix:") else []
    with grpc.insecure_channel(address, options) as opened:
        {case.__name__: case for case in CASES}[case](Client(opened))
