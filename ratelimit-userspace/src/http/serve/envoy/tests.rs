use std::{net::Ipv4Addr, path::PathBuf};

use envoy_types::pb::{
    envoy::{
        extensions::common::ratelimit::v3::{
            RateLimitDescriptor,
            rate_limit_descriptor::{Entry, RateLimitOverride},
        },
        service::ratelimit::v3::{
            rate_limit_response::{Code as Answered, DescriptorStatus, RateLimit, rate_limit::Unit},
            rate_limit_service_client::RateLimitServiceClient,
        },
    },
    google::protobuf::UInt64Value,
};
use tokio::{sync::oneshot, task::JoinHandle};
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::{HealthCheckRequest, health_check_response, health_client::HealthClient};

use super::*;
use crate::{
    config::http::{self as config, Algorithm, Compatibility, Http, Listen, ValuePattern},
    http::{
        clock::Clock,
        identify::Identifier,
        limiter::Limiter,
        metrics::Metrics,
        serve::fixture::{self, limit, policy},
    },
};

// === a limiter to ask ===

/// Three an hour for each `user`, all denied by the shadow rule of `watched`, no limit on `free`.
fn configuration(access: config::Access) -> Http {
    let hour = |units| policy(limit(units, 3_600, Algorithm::SlidingLog));
    let descriptor = |key: &str, rule: config::Rule| config::Descriptor {
        key: key.to_owned(),
        value: ValuePattern::Any,
        share_threshold: false,
        rule: Some(config::Rule { name: Some(format!("per-{key}")), ..rule }),
        descriptors: Vec::new(),
        line: 1,
    };
    let descriptors = vec![
        descriptor("user", hour(3)),
        descriptor("watched", config::Rule { shadow: true, ..hour(0) }),
        descriptor("free", config::Rule { limit: None, ..hour(0) }),
    ];
    let (name, file) = ("api".to_owned(), PathBuf::new());
    let domain = config::Domain { name, file, compatibility: Compatibility::Native, descriptors };
    Http { domains: vec![domain], access, ..fixture::config() }
}

pub(super) fn front(access: config::Access) -> Arc<Front> {
    let config = configuration(access);
    let limiter = Arc::new(Limiter::new(&config, [7; 32]));
    let identifier = Arc::new(Identifier::new(&config, [7; 32]));
    let clock = Clock::new();
    Front::new(&config, limiter, identifier, Arc::new(Metrics::default()), move || clock.now()).unwrap()
}

pub(super) fn asker(front: &Arc<Front>, peer: Peer) -> Arc<Asker> {
    Arc::new(Asker { front: Arc::clone(front), peer, requests: AtomicU64::new(0) })
}

/// One on this host.
fn local() -> Arc<Asker> {
    asker(&front(config::Access::default()), Peer::Unix)
}

// === questions ===

fn descriptor(key: &str, value: &str) -> RateLimitDescriptor {
    let entries = vec![Entry { key: key.to_owned(), value: value.to_owned() }];
    RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }
}

fn hits(hits: u64) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(UInt64Value { value: hits }), ..descriptor("user", "7") }
}

fn refund(count: u64) -> RateLimitDescriptor {
    RateLimitDescriptor { is_negative_hits: true, ..hits(count) }
}

fn bringing(requests_per_unit: u32, unit: i32) -> RateLimitDescriptor {
    let limit = Some(RateLimitOverride { requests_per_unit, unit });
    RateLimitDescriptor { limit, ..descriptor("user", "8") }
}

pub(super) fn request(descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest { domain: "api".to_owned(), descriptors, hits_addend: 0 }
}

/// What a service says without a network in between.
async fn ask(asker: &Asker, descriptors: Vec<RateLimitDescriptor>) -> Result<RateLimitResponse, Status> {
    asker.should_rate_limit(Request::new(request(descriptors))).await.map(Response::into_inner)
}

/// The code as a whole, and what is left under the first descriptor.
async fn verdict(asker: &Asker, descriptors: Vec<RateLimitDescriptor>) -> (Answered, u32) {
    let response = ask(asker, descriptors).await.unwrap();
    (response.overall_code(), response.statuses[0].limit_remaining)
}

// === a server to ask ===

/// A server on a socket of its own.
struct Server {
    address: std::net::SocketAddr,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<()>,
}

impl Server {
    fn start() -> Self {
        let listener = Listener::bind(&Listen::Tcp((Ipv4Addr::LOCALHOST, 0).into())).unwrap();
        let address = listener.local_address().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let front = front(config::Access::default());
        let ended = tokio::spawn(serve(listener, front, async { drop(stopped.await) }));
        Self { address, stop, ended }
    }

    async fn channel(&self) -> Channel {
        Endpoint::new(format!("http://{}", self.address)).unwrap().connect().await.unwrap()
    }
}

async fn health(channel: &Channel, service: &str) -> Result<i32, Code> {
    let request = HealthCheckRequest { service: service.to_owned() };
    let answer = HealthClient::new(channel.clone()).check(request).await;
    answer.map(|answer| answer.into_inner().status).map_err(|status| status.code())
}

// === decisions ===

#[tokio::test]
async fn three_pass_and_the_fourth_is_over_the_limit() {
    let asker = local();
    for remaining in [2, 1, 0] {
        assert_eq!(verdict(&asker, vec![descriptor("user", "7")]).await, (Answered::Ok, remaining));
    }
    assert_eq!(verdict(&asker, vec![descriptor("user", "7")]).await, (Answered::OverLimit, 0));
    assert_eq!(verdict(&asker, vec![descriptor("user", "8")]).await, (Answered::Ok, 2));
}

#[tokio::test]
async fn every_descriptor_has_its_status() {
    let asker = local();
    let descriptors = ["user", "watched", "free", "unknown"].map(|key| descriptor(key, "7")).to_vec();
    let RateLimitResponse { statuses, overall_code, .. } = ask(&asker, descriptors).await.unwrap();
    assert_eq!(overall_code, i32::from(Answered::Ok));
    let unmatched = DescriptorStatus { code: Answered::Ok.into(), ..DescriptorStatus::default() };
    let unlimited = DescriptorStatus { limit_remaining: u32::MAX, ..unmatched.clone() };
    let [user, watched, free, unknown] = &statuses[..] else { panic!("{statuses:?}") };
    let current_limit =
        RateLimit { name: "per-user".to_owned(), requests_per_unit: 3, unit: Unit::Hour.into() };
    assert_eq!(user.current_limit, Some(current_limit));
    assert_eq!(user.limit_remaining, 2);
    assert!(user.duration_until_reset.unwrap().seconds >= 3_590);
    assert_eq!((watched, free, unknown), (&unmatched, &unlimited, &unmatched));
}

#[tokio::test]
async fn a_descriptors_own_hits_stand() {
    let asker = local();
    assert_eq!(verdict(&asker, vec![hits(2)]).await, (Answered::Ok, 1));
    assert_eq!(verdict(&asker, vec![hits(0)]).await, (Answered::Ok, 1), "0 reads");
    assert_eq!(verdict(&asker, vec![hits(2)]).await, (Answered::OverLimit, 1));
    assert_eq!(verdict(&asker, vec![refund(1)]).await, (Answered::Ok, 2), "negative hits give back");
    assert_eq!(verdict(&asker, vec![hits(2)]).await, (Answered::Ok, 0));
    assert_eq!(verdict(&asker, vec![refund(u64::MAX)]).await, (Answered::Ok, 3), "never above the limit");
    assert_eq!(verdict(&asker, vec![hits(u64::MAX)]).await, (Answered::OverLimit, 3));
}

#[tokio::test]
async fn a_limit_of_its_own_replaces_the_rules() {
    let asker = local();
    assert_eq!(verdict(&asker, vec![bringing(1, 1)]).await, (Answered::Ok, 0));
    let RateLimitResponse { statuses, .. } = ask(&asker, vec![bringing(1, 1)]).await.unwrap();
    let limit = statuses[0].current_limit.clone().unwrap();
    assert_eq!((limit.requests_per_unit, limit.unit()), (1, Unit::Second));
    assert_eq!(verdict(&asker, vec![bringing(0, 6)]).await, (Answered::OverLimit, 0), "0 blocks");
}

#[tokio::test]
async fn no_unit_makes_the_service_fail() {
    let asker = local();
    for unit in (-10..=100).chain([i32::MIN, i32::MAX]) {
        let answered = ask(&asker, vec![bringing(5, unit)]).await;
        let refused = answered.err().map(|status| status.code());
        assert_eq!(refused, (!(1..=6).contains(&unit)).then_some(Code::InvalidArgument), "{unit}");
    }
}

#[tokio::test]
async fn what_says_nothing_is_an_invalid_argument() {
    let asker = local();
    let status = ask(&asker, Vec::new()).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(status.message(), "rate limit descriptor list must not be empty");
}

// === rights ===

#[tokio::test]
async fn from_elsewhere_only_the_write_right_refunds_and_overrides() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "let-me-write\n").unwrap();
    let access = config::Access {
        allow_from: vec!["192.0.2.0/24".parse().unwrap()],
        token_file: None,
        write_token_file: Some(token),
    };
    let front = front(access);
    let near = asker(&front, Peer::Address([192, 0, 2, 1].into()));
    let bearing = |descriptor: RateLimitDescriptor, token: &str| {
        let mut request = Request::new(request(vec![descriptor]));
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        request
    };
    assert_eq!(verdict(&near, vec![hits(1)]).await, (Answered::Ok, 2));
    for needs_write in [refund(1), bringing(9, 2)] {
        let refused = ask(&near, vec![needs_write.clone()]).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
        let refused = near.should_rate_limit(bearing(needs_write.clone(), "wrong")).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
        near.should_rate_limit(bearing(needs_write, "let-me-write")).await.unwrap();
    }
    assert_eq!(verdict(&near, vec![hits(0)]).await, (Answered::Ok, 3), "one refund was counted");

    let far = asker(&front, Peer::Address([198, 51, 100, 1].into()));
    assert_eq!(far.demand(Rights::Ask, None).unwrap_err().code(), Code::Unauthenticated);
    let authorization = HeaderValue::from_static("Bearer let-me-write");
    assert!(far.demand(Rights::Write, Some(&authorization)).is_ok());
}

#[tokio::test]
async fn who_no_token_could_help_is_denied_permission() {
    let far = asker(&front(config::Access::default()), Peer::Address([198, 51, 100, 1].into()));
    assert_eq!(far.demand(Rights::Ask, None).unwrap_err().code(), Code::PermissionDenied);
}

// === over sockets ===

#[tokio::test]
async fn a_client_is_served_over_tcp_until_the_end() {
    let server = Server::start();
    let channel = server.channel().await;
    let mut client = RateLimitServiceClient::new(channel.clone());
    let answer = client.should_rate_limit(request(vec![descriptor("user", "7")])).await.unwrap();
    assert_eq!(answer.into_inner().overall_code(), Answered::Ok);

    let serving = Ok(i32::from(health_check_response::ServingStatus::Serving));
    for name in HEALTH_NAMES {
        assert_eq!(health(&channel, name).await, serving, "{name:?}");
    }
    assert_eq!(health(&channel, "no.such.Service").await, Err(Code::NotFound));

    server.stop.send(()).unwrap();
    server.ended.await.unwrap();
    assert!(client.should_rate_limit(request(vec![descriptor("user", "7")])).await.is_err());
    assert!(tokio::net::TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn a_client_is_served_over_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("grpc.sock");
    let listener = Listener::bind(&Listen::Unix(path.clone())).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let front = front(config::Access::default());
    let ended = tokio::spawn(serve(listener, front, async { drop(stopped.await) }));

    let endpoint = Endpoint::new(format!("unix:{}", path.display())).unwrap();
    let mut client = RateLimitServiceClient::new(endpoint.connect().await.unwrap());
    let answer = client.should_rate_limit(request(vec![bringing(5, 2)])).await.unwrap().into_inner();
    assert_eq!((answer.overall_code(), answer.statuses[0].limit_remaining), (Answered::Ok, 4));

    drop(client);
    stop.send(()).unwrap();
    ended.await.unwrap();
    assert!(!path.exists());
}
