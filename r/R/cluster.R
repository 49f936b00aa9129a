# Clusters: jobs on other machines, over HTTP.

default_address <- "http://127.0.0.1:7002"

ulisse_connect <- function(cluster = NULL, token = NULL, namespace = NULL, tls_ca = NULL, tls_cert = NULL, tls_key = NULL) {
  if (inherits(cluster, "ulisse_cluster")) return(cluster)
  env <- function(name) if (nzchar(Sys.getenv(name))) Sys.getenv(name)
  first <- function(...) Find(function(x) !is.null(x) && nzchar(x), list(...))
  if (is.null(cluster)) cluster <- Sys.getenv("ULISSE")
  known <- list()
  if (all(grepl("://", cluster, fixed = TRUE))) {
    addresses <- trimws(unlist(strsplit(cluster, ",", fixed = TRUE)))
  } else {
    known <- context_of(cluster)
    addresses <- known$addresses
  }
  token <- first(token, env("ULISSE_TOKEN"), known$token)
  if (!all(grepl("^https?://", addresses))) fail("bad_input", sprintf("the coordinator's address %s: give http://host:port or https://host:port", addresses[[1]]))
  away <- grepl("^http://", addresses) & !grepl("^http://(localhost|127\\.[0-9.]*|\\[::1\\])(:|/|$)", addresses)
  if (!is.null(token) && any(away)) fail("bad_input", sprintf("a token goes over TLS or to this machine only: %s is neither", addresses[away][[1]]))
  cluster <- new.env(parent = emptyenv())
  class(cluster) <- "ulisse_cluster"
  cluster$addresses <- sub("/+$", "", addresses)
  cluster$token <- token
  cluster$namespace <- first(namespace, env("ULISSE_NAMESPACE"), known$namespace)
  cluster$tls <- list(cainfo = first(tls_ca, env("ULISSE_TLS_CA"), known$tls_ca), sslcert = first(tls_cert, env("ULISSE_TLS_CERT"), known$tls_cert),
    sslkey = first(tls_key, env("ULISSE_TLS_KEY"), known$tls_key))
  cluster$tls <- Filter(Negate(is.null), cluster$tls)
  cluster
}

print.ulisse_cluster <- function(x, ...) {
  cat("ulisse cluster", paste(x$addresses, collapse = ", "), "\n")
  invisible(x)
}

# The addresses and secrets of a context, of the current one for no name. The program reads the file of contexts,
# and asks the coordinators where they speak HTTP.
context_of <- function(name) {
  named <- length(name) == 1 && nzchar(name)
  if (!named && !ulisse_available()) return(list(addresses = default_address))
  shown <- jsonlite::fromJSON(call_program(c("context", "show", if (named) name)))
  scheme <- if (nzchar(shown$tls_ca)) "https" else "http"
  members <- tryCatch(
    jsonlite::fromJSON(call_program(c("cluster", "--json", "--timeout", "5s", if (named) c("--context", name))))$members,
    ulisse_error = function(e) data.frame(http_address = ":7002", grpc_address = shown$coordinators)
  )
  members <- members[nzchar(members$http_address), ]
  if (!NROW(members)) return(c(list(addresses = default_address), shown))
  host <- sub(":[0-9]+$", "", members$http_address)
  everywhere <- host %in% c("", "0.0.0.0", "[::]") # it listens on all: the host is that of its other port
  host[everywhere] <- sub(":[0-9]+$", "", members$grpc_address[everywhere])
  c(list(addresses = sprintf("%s://%s:%s", scheme, host, sub(".*:", "", members$http_address))), shown)
}

# Requests.

new_request <- function(cluster, method, body = NULL, con = NULL, size = 0) {
  h <- curl::new_handle(customrequest = method, connecttimeout = 10, low_speed_limit = 1, low_speed_time = 60, followlocation = FALSE)
  if (length(cluster$tls)) do.call(curl::handle_setopt, c(list(h), cluster$tls))
  headers <- c(Authorization = if (!is.null(cluster$token)) paste("Bearer", cluster$token), "Ulisse-Namespace" = cluster$namespace)
  if (!is.null(body)) {
    curl::handle_setopt(h, copypostfields = body)
    headers <- c(headers, "Content-Type" = "application/json")
  }
  if (!is.null(con)) {
    curl::handle_setopt(h, upload = TRUE, infilesize_large = size, readfunction = function(n) readBin(con, "raw", n))
  }
  if (length(headers)) do.call(curl::handle_setheaders, c(list(h), as.list(headers)))
  h
}

# Send a request to whichever coordinator answers and return the bytes of the answer. One that must not be done
# twice is sent once.
request <- function(cluster, method, path, body = NULL, file = NULL, repeated = TRUE) {
  if (!is.null(body)) body <- to_json(body)
  until <- proc.time()[["elapsed"]] + 20
  pause <- 0.1
  repeat {
    busy <- FALSE
    for (address in cluster$addresses) {
      answer <- tryCatch(once(cluster, address, method, path, body, file), ulisse_unreachable = identity)
      if (!inherits(answer, "error")) return(answer)
      if (!repeated) stop(answer)
      busy <- busy || isTRUE(answer$busy)
      cluster$addresses <- c(setdiff(cluster$addresses, address), address) # the next is asked first from here on
    }
    if (!busy || proc.time()[["elapsed"]] > until) stop(answer)
    Sys.sleep(pause)
    pause <- min(2, 2 * pause)
  }
}

once <- function(cluster, address, method, path, body, file) {
  con <- NULL
  if (!is.null(file)) {
    con <- base::file(file, "rb")
    on.exit(close(con))
  }
  h <- new_request(cluster, method, body, con, if (is.null(file)) 0 else file.size(file))
  answer <- tryCatch(curl::curl_fetch_memory(paste0(address, path), h), error = function(e) silent(address, e))
  if (answer$status_code < 300) return(answer$content)
  refused(address, answer$status_code, answer$content)
}

silent <- function(address, e) {
  why <- conditionMessage(e)
  if (grepl("certificate", why, ignore.case = TRUE) && grepl("verif|self.signed|issuer", why, ignore.case = TRUE))
    fail("unreachable", sprintf("%s shows a certificate that is not to be trusted: give its authority with tls_ca", address))
  if (grepl("refused|connect to", why)) why <- "connection refused"
  fail("unreachable", sprintf("no answer from %s: %s", address, why))
}

refused <- function(address, status, content) {
  body <- tryCatch(jsonlite::fromJSON(rawToChar(content), simplifyVector = FALSE), error = function(e) NULL)
  if (!is.null(body$error)) body <- body$error # of a stream
  if (is.null(body$message)) {
    if (status %in% c(301, 302, 303, 307, 401, 403))
      fail("permission_denied", sprintf("%s asks who you are: give a token, or a certificate with tls_cert and tls_key", address))
    fail("unreachable", sprintf("%s does not speak the JSON API of ulisse (HTTP %d)", address, status))
  }
  api_error(body)
}

# Stop with the error of the API that a body holds. Its codes are those of gRPC.
api_error <- function(body) {
  message <- body$message
  violations <- unlist(lapply(body$details, function(d) lapply(d$field_violations, `[[`, "field")))
  slow_down <- body$code == 8 && any(vapply(body$details, function(d) !is.null(d$retry_delay), NA))
  if (body$code %in% c(7, 16)) fail("permission_denied", message)
  if (body$code %in% c(4, 14) || slow_down) fail("unreachable", message, busy = TRUE)
  if (body$code == 5) fail("not_found", message)
  if (body$code == 3 && length(violations) && startsWith(violations[[1]], "spec")) fail_field(message, FALSE, sub("^spec\\.?", "", violations[[1]]))
  if (body$code %in% c(3, 11)) fail("bad_input", message)
  fail("", message)
}

# Send a request of the JSON API and return its answer.
call_api <- function(cluster, method, path, body = NULL, file = NULL, repeated = TRUE) {
  content <- request(cluster, method, path, body, file, repeated)
  tryCatch(jsonlite::fromJSON(rawToChar(content), simplifyVector = FALSE), error = function(e)
    fail("unreachable", sprintf("%s does not speak the JSON API of ulisse", cluster$addresses[[1]])))
}

# The messages of a stream that came as a whole.
messages <- function(content) {
  lapply(strsplit(rawToChar(content), "\n", fixed = TRUE)[[1]], function(line) {
    m <- jsonlite::fromJSON(line, simplifyVector = FALSE)
    if (!is.null(m$error)) api_error(m$error)
    m$result
  })
}

# Jobs.

ulisse_submit <- function(spec, data = NULL, cluster = NULL, priority = 0, client_id = NULL) {
  cluster <- ulisse_connect(cluster)
  text <- spec_text(spec)
  if (is.null(client_id)) client_id <- new_id()
  body <- list(spec = as.character(text$text), client_id = client_id, priority = priority)
  if (!is.null(data)) body$data <- upload(cluster, data)
  j <- tryCatch(call_api(cluster, "POST", "/v1/jobs", body), ulisse_bad_specification = function(e) {
    if (text$generated) fail_field(conditionMessage(e), TRUE, e$field)
    stop(e)
  })
  new_remote(cluster, j)
}

# A name that nobody else has. It draws no random numbers: those are the user's.
new_id <- function() paste0(basename(tempfile("r-")), "-", Sys.getpid(), "-", sprintf("%.6f", as.numeric(Sys.time())))

# Bring a table to the cluster and return its address.
upload <- function(cluster, data) {
  path <- data
  if (!is.character(data)) {
    path <- tempfile("ulisse-", fileext = ".csv")
    on.exit(unlink(path))
    write_table(data, path)
  }
  if (!file.exists(path)) fail("bad_input", paste("cannot read the data: there is no file", path))
  call_api(cluster, "PUT", "/v1/data", file = path)$sha256
}

ulisse_job <- function(job, cluster = NULL) {
  cluster <- ulisse_connect(cluster)
  tryCatch(new_remote(cluster, call_api(cluster, "GET", paste0("/v1/jobs/", curl::curl_escape(job)))), ulisse_not_found = function(e) {
    named <- jobs_list(cluster, job, NULL, 100)
    named <- Filter(function(j) j$name == job, named)
    if (!length(named)) fail("not_found", sprintf("there is no job \"%s\": ulisse_jobs() lists those that there are", job))
    new_remote(cluster, named[[1]])
  })
}

ulisse_jobs <- function(name = NULL, states = NULL, limit = 100, cluster = NULL) {
  list <- jobs_list(ulisse_connect(cluster), name, states, limit)
  statuses <- lapply(list, status_of)
  data.frame(
    id = vapply(list, `[[`, "", "id"), name = vapply(list, `[[`, "", "name"),
    state = vapply(statuses, `[[`, "", "state"), draws = vapply(statuses, `[[`, 0L, "draws"),
    rhat = vapply(statuses, `[[`, 0, "rhat"), ess = vapply(statuses, `[[`, 0, "ess"),
    submitted = as.POSIXct(vapply(list, `[[`, "", "submitted"), format = "%Y-%m-%dT%H:%M:%OS", tz = "UTC"),
    message = vapply(statuses, `[[`, "", "message")
  )
}

jobs_list <- function(cluster, name, states, limit) {
  query <- c(if (length(states)) paste0("states=JOB_STATE_", toupper(states)), if (!is.null(name)) paste0("name=", curl::curl_escape(name)))
  found <- list()
  token <- ""
  repeat {
    q <- paste(c(query, paste0("page_size=", limit - length(found)), paste0("page_token=", curl::curl_escape(token))), collapse = "&")
    page <- call_api(cluster, "GET", paste0("/v1/jobs?", q))
    found <- c(found, page$jobs)
    token <- page$next_page_token
    if (!length(token) || !nzchar(token) || length(found) >= limit) return(utils::head(found, limit))
  }
}

new_remote <- function(cluster, j) {
  job <- new.env(parent = emptyenv())
  class(job) <- c("ulisse_remote", "ulisse_job")
  job$cluster <- cluster
  job$id <- j$id
  job$last <- j
  job
}

status_of <- function(j) {
  p <- j$progress
  known <- function(x) {
    x <- suppressWarnings(as.numeric(x))
    if (length(x) == 1 && is.finite(x) && x > 0) x else NA_real_
  }
  draws <- vapply(p$chains, function(c) as.integer(c$draws), 0L)
  text <- if (nzchar(j$message)) j$message else if (is.null(j$health$message)) "" else j$health$message
  new_status(tolower(sub("^JOB_STATE_", "", j$state)), if (length(draws)) min(draws) else 0L, if (is.null(p$draws)) 0L else as.integer(p$draws),
    known(p$rhat), known(p$ess), if (is.null(p$active_seconds)) 0 else p$active_seconds, text)
}

job_path <- function(job, rest = "") paste0("/v1/jobs/", job$id, rest)

job_name.ulisse_remote <- function(job) job$last$name

job_status.ulisse_remote <- function(job) {
  if (!status_of(job$last)$state %in% ended_states) job$last <- call_api(job$cluster, "GET", job_path(job))
  status_of(job$last)
}

job_follow.ulisse_remote <- function(job, f) {
  wait <- 0.1
  repeat {
    s <- job_status(job)
    f(s)
    if (s$state %in% c(ended_states, "paused")) return()
    Sys.sleep(wait)
    wait <- min(1, 1.3 * wait)
  }
}

job_failure.ulisse_remote <- function(job, status) fail("job_failed", sprintf("%s failed: %s", job_name(job), status$message))

job_summary.ulisse_remote <- function(job) jsonlite::fromJSON(call_api(job$cluster, "GET", job_path(job, "/summary"))$json, simplifyVector = FALSE)

job_draws.ulisse_remote <- function(job) {
  out <- tempfile("ulisse-", fileext = ".csv")
  on.exit(unlink(out))
  writeBin(request(job$cluster, "GET", job_path(job, "/export?format=csv")), out)
  read_numbers(out)
}

job_info.ulisse_remote <- function(job) {
  if (!length(job$last$data$inputs)) job$last <- call_api(job$cluster, "GET", job_path(job))
  data <- job$last$data
  if (!length(data$inputs)) fail("", sprintf("job %s has not read its data yet: ulisse_watch() waits for it", job_name(job)))
  info_of(data)
}

# The rows as the API takes them: inputs as numbers, and what is said of each.
points_of <- function(info, rows) {
  coded <- function(name, levels) {
    x <- rows[[name]]
    if (length(levels)) return(codes(x, levels, paste("the column", name)))
    if (!is.numeric(x) && !is.logical(x)) fail("bad_input", sprintf("the column %s does not hold numbers", name))
    as.numeric(x)
  }
  x <- do.call(cbind, lapply(seq_along(info$inputs), function(k) coded(info$inputs[[k]], if (length(info$levels)) info$levels[[k]])))
  offset <- if (!is.null(info$offset)) coded(info$offset, NULL)
  noise <- list()
  if (all(c(info$noise$column, info$noise$by) %in% names(rows))) { # else it is not asked for
    if (!is.null(info$noise$column)) noise$known <- coded(info$noise$column, NULL)
    if (!is.null(info$noise$weights) && info$noise$weights %in% names(rows)) noise$weight <- coded(info$noise$weights, NULL)
    if (!is.null(info$noise$by)) noise$level <- info$noise$levels[coded(info$noise$by, info$noise$levels) + 1]
  }
  lapply(seq_len(nrow(x)), function(i) {
    point <- list(inputs = I(x[i, ]))
    if (!is.null(offset)) point$offset <- offset[[i]]
    if (length(noise)) point$noise <- lapply(noise, `[[`, i)
    point
  })
}

job_predict.ulisse_remote <- function(job, rows, probs, latent, draws) {
  info <- job_info(job)
  points <- points_of(info, rows)
  y <- if (info$target %in% names(rows) && !anyNA(rows[[info$target]])) target_of(info, rows)
  parts <- lapply(split(seq_along(points), (seq_along(points) - 1) %/% 128), function(at) {
    body <- list(rows = points[at], quantiles = I(probs), latent = latent)
    if (!is.null(y)) body$targets <- I(y[at])
    if (!is.null(draws)) body$draws <- draws
    found <- Filter(function(m) length(m$rows) > 0, messages(request(job$cluster, "POST", job_path(job, ":predict"), body)))
    if (!length(found)) fail("unreachable", "the prediction ended without an answer: ask again")
    found[[length(found)]]
  })
  if (length(unique(vapply(parts, `[[`, "", "draws_sha256"))) > 1) fail("", sprintf("job %s has drawn more in the meantime: predict again", job_name(job)))
  said <- unlist(lapply(parts, `[[`, "rows"), recursive = FALSE)
  column <- function(k) vapply(said, function(r) as.numeric(r[[k]]), 0, USE.NAMES = FALSE)
  q <- lapply(said, function(r) as.numeric(unlist(r$quantiles)))
  classes <- said[[1]]$classes
  probabilities <- lapply(seq_along(classes), function(k) vapply(said, function(r) as.numeric(r$classes[[k]]$probability), 0, USE.NAMES = FALSE))
  names(probabilities) <- vapply(classes, function(class) sprintf("p[%s]", class$name), "")
  functions <- list()
  for (k in seq_along(said[[1]]$functions)) for (what in c("mean", "sd"))
    functions[[sprintf("%s[%s]", what, said[[1]]$functions[[k]]$name)]] <- vapply(said, function(r) as.numeric(r$functions[[k]][[what]]), 0, USE.NAMES = FALSE)
  numbers <- !length(classes) || !all(is.nan(column("mean"))) # classes without an order have none
  list(mean = if (numbers) column("mean"), sd = if (numbers) column("sd"), quantiles = if (numbers) matrix(unlist(q), nrow = length(said), byrow = TRUE),
    log_density = if (!is.null(y)) column("log_density"), probabilities = probabilities, functions = functions)
}

job_action.ulisse_remote <- function(job, action) {
  job$last <- call_api(job$cluster, "POST", job_path(job, paste0(":", action)), list(id = job$id))
  job
}

ulisse_extend.ulisse_remote <- function(job, draws) {
  job$last <- call_api(job$cluster, "POST", job_path(job, ":extend"), list(draws = draws), repeated = FALSE)
  job$drawn <- NULL
  invisible(job)
}

ulisse_logs.ulisse_remote <- function(job) {
  lapply(messages(request(job$cluster, "GET", job_path(job, "/logs"))), function(l) {
    told <- tryCatch(jsonlite::fromJSON(l$text), error = function(e) list(msg = l$text, chain = l$chain))
    c(list(time = l$time, worker = l$worker), as.list(told))
  })
}

ulisse_logs.ulisse_fit <- function(job) ulisse_logs(job$job)
