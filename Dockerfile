# The image of ulisse: one static binary and its bill of materials. Without an
# engine 'go run ./hack/image' builds the same.
#
#   docker buildx build --platform linux/amd64,linux/arm64 --build-arg VERSION=0.1.0 \
#     --build-arg REVISION=$(git rev-parse HEAD) --build-arg CREATED=$(git log -1 --format=%cI) -t ulisse:0.1.0 .
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETARCH VERSION=0.1.0-dev REVISION CREATED
RUN mkdir /out \
 && GOOS=linux GOARCH=$TARGETARCH COMMIT=$(echo "$REVISION" | head -c 12) DATE=$CREATED hack/build /out/ulisse "$VERSION" \
 && go run ./hack/image --version "$VERSION" --sbom /out/ulisse >/out/sbom.spdx.json

FROM scratch
ARG VERSION=0.1.0-dev REVISION CREATED
LABEL org.opencontainers.image.title="ulisse" \
      org.opencontainers.image.description="Posterior draws of exact Gaussian processes on large data" \
      org.opencontainers.image.source="https://github.com/ulisse-gp/ulisse" \
      org.opencontainers.image.documentation="https://github.com/ulisse-gp/ulisse/tree/main/docs" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.created="$CREATED"
COPY --from=build /out/ /
USER 65532:65532
ENTRYPOINT ["/ulisse"]
