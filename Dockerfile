# syntax=docker/dockerfile:1

# Both images are Debian 12: a binary linked against a newer libc would not start in the second. The tags say what the
# digests are; docs/operations.md shows how to get newer ones.
ARG BUILD_IMAGE=rust:1.95-slim-bookworm@sha256:d7482085ff5b415f84dba5647ae71606650bdef00db7aeb69f4b3d170c3e4082
ARG RUNTIME_IMAGE=gcr.io/distroless/cc-debian12:nonroot@sha256:9dac0a79194e45a7da0158a9c6da57b217585af0786db3845d1f0ec1a0dd182f

FROM ${BUILD_IMAGE} AS build
WORKDIR /build
COPY . .
# The history is not copied, so `tidegate version` gets the commit from here: --build-arg COMMIT=$(git rev-parse HEAD).
ARG COMMIT
# pgo: with profile-guided optimisation. release: without it. quick: also without link-time optimisation, for local use.
ARG BUILD=pgo
# Crates and object files are kept in the builder's cache, so that a small change does not rebuild everything.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/build/target \
    export TIDEGATE_COMMIT=${COMMIT} \
    && if [ "$BUILD" = pgo ]; then packaging/pgo > /binary; \
       else cargo build --locked --profile "$BUILD" && echo "target/$BUILD/tidegate" > /binary; fi \
    && strip --strip-debug -o /tidegate "$(cat /binary)"
# The licences of the dependencies require that their texts are distributed; a quick build is not.
ARG CARGO_ABOUT=0.9.3
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    if [ "$BUILD" = quick ]; then echo "not generated: this image is for local use" > /LICENSES-OF-DEPENDENCIES; else \
      cargo install --locked --version ${CARGO_ABOUT} --features cli --root /about cargo-about \
      && /about/bin/cargo-about generate --locked --fail --output-file /LICENSES-OF-DEPENDENCIES about.hbs; fi
# The default is the quickstart, on all addresses: 127.0.0.1 would be reachable inside the container only.
RUN sed 's/^listen = "127.0.0.1:8080"/listen = "0.0.0.0:8080"/' config/quickstart.toml > /tidegate.toml \
    && grep -qxF 'listen = "0.0.0.0:8080"' /tidegate.toml \
    && /tidegate check -c /tidegate.toml

# No shell and no package manager: only the C library, certificates, and a user other than root.
FROM ${RUNTIME_IMAGE}
ARG COMMIT
LABEL org.opencontainers.image.title="tidegate" \
      org.opencontainers.image.description="A reverse proxy with exact, distributed rate limiting built in" \
      org.opencontainers.image.licenses="Apache-2.0 OR MIT" \
      org.opencontainers.image.revision="${COMMIT}"
COPY --from=build /build/LICENSE /build/LICENSE-APACHE /build/LICENSE-MIT /usr/share/doc/tidegate/
COPY --from=build /LICENSES-OF-DEPENDENCIES /usr/share/doc/tidegate/
COPY --from=build /tidegate /usr/local/bin/tidegate
COPY --from=build /tidegate.toml /etc/tidegate/tidegate.toml
EXPOSE 8080
# Asks the admin interface, or connects to the listeners if the configuration has none.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 CMD ["/usr/local/bin/tidegate", "health"]
ENTRYPOINT ["/usr/local/bin/tidegate"]
CMD ["run", "-c", "/etc/tidegate/tidegate.toml"]
