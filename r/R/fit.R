# ulisse(): a formula, a data frame, and a fit with the methods that R users know.

ulisse <- function(formula, data, kernel = NULL, ard = NULL, mean = NULL, noise = NULL, priors = NULL, chains = NULL, draws = NULL,
                   seed = NULL, max_time = NULL, rhat = NULL, ess = NULL, spec = list(), cluster = NULL, folder = NULL,
                   threads = NULL, progress = interactive()) {
  call <- match.call()
  model <- frame_of(formula, data)
  base <- list(
    name = "gp",
    data = list(path = "table", target = model$target, inputs = if (!is.null(model$inputs)) I(model$inputs)),
    model = list(kernel = kernel, ard = ard, mean = mean, noise = noise, priors = if (length(priors)) as.list(priors)),
    sampler = list(chains = chains, draws = draws),
    stop = list(max_time = duration(max_time), rhat = rhat, ess = ess),
    seed = seed
  )
  whole <- utils::modifyList(without_null(base), spec)
  job <- if (is.null(cluster)) ulisse_run(whole, model$data, folder, threads) else ulisse_submit(whole, model$data, cluster)
  fit <- structure(class = "ulisse_fit", list(call = call, formula = model$formula, terms = model$terms, xlevels = model$xlevels,
    data = model$data, target = model$target, job = job, progress = progress))
  finish_fit(fit)
}

# Wait for the end of a run, and keep its results.
finish_fit <- function(fit) {
  ulisse_watch(fit$job, fit$progress)
  if (job_status(fit$job)$state %in% ended_states) {
    if (inherits(fit$job, "ulisse_local")) local_keep(fit$job) else job_frame(fit$job)
  }
  invisible(fit)
}

# The columns that a formula names, evaluated.
frame_of <- function(formula, data) {
  if (!inherits(formula, "formula") || length(formula) != 3) fail("bad_input", "formula: give one with both sides, as in y ~ a + b")
  if (is.character(data)) { # the path of a table, which the program reads
    vars <- all.vars(formula[[3]])
    target <- all.vars(formula[[2]])
    if (length(target) != 1 || !is.name(formula[[2]])) fail("bad_input", "formula: of a table in a file the columns are named as they are")
    return(list(formula = formula, target = target, inputs = if (!"." %in% vars) vars, data = data))
  }
  terms <- stats::terms(formula, data = data)
  if (any(attr(terms, "order") > 1)) fail("bad_input", "formula: a Gaussian process finds interactions by itself: name the inputs only, as in y ~ a + b")
  if (!is.null(attr(terms, "offset"))) fail("bad_input", "formula: there are no offsets here: subtract it from the target")
  frame <- stats::model.frame(terms, data, na.action = stats::na.pass)
  used <- if (length(attr(terms, "factors"))) rowSums(attr(terms, "factors"))[-1] > 0 else FALSE # y ~ . - a keeps a among its variables
  if (!any(used)) fail("bad_input", "formula: name an input at least, as in y ~ a")
  list(formula = stats::formula(terms), terms = attr(frame, "terms"), target = names(frame)[[1]], inputs = names(frame)[-1][used],
    data = frame[c(TRUE, used)], xlevels = stats::.getXlevels(attr(frame, "terms"), frame))
}

# The rows of newdata as the fit knows them; with the target, where it can be computed.
rows_of <- function(fit, newdata) {
  if (is.null(newdata)) {
    if (is.character(fit$data)) return(utils::read.csv(fit$data, check.names = FALSE))
    return(fit$data)
  }
  if (is.null(fit$terms)) return(newdata)
  rows <- stats::model.frame(stats::delete.response(fit$terms), newdata, na.action = stats::na.pass, xlev = fit$xlevels)
  y <- tryCatch(eval(fit$formula[[2]], newdata, environment(fit$formula)), error = function(e) NULL)
  if (is.numeric(y) && length(y) == nrow(rows)) rows[[fit$target]] <- y
  rows
}

duration <- function(x) {
  if (is.null(x) || is.character(x)) return(x)
  seconds <- if (inherits(x, "difftime")) as.numeric(x, units = "secs") else x
  if (!is.numeric(seconds) || !isTRUE(seconds >= 0)) fail("bad_input", "max_time: give seconds, a difftime, or text such as \"1h30m\"")
  paste0(format(seconds, scientific = FALSE, trim = TRUE), "s")
}

without_null <- function(x) {
  if (!is.list(x) || inherits(x, "AsIs")) return(x)
  x <- lapply(x, without_null)
  Filter(function(v) !is.null(v) && !(is.list(v) && !length(v)), x)
}

print.ulisse_fit <- function(x, digits = 3, ...) {
  cat("Gaussian process: ", paste(deparse(x$formula), collapse = " "), "\n", sep = "")
  status <- job_status(x$job)
  cat(describe_status(status), "\n", sep = "")
  if (status$state %in% c("converged", "unconverged")) {
    s <- summary(x)
    cat("\n")
    shown <- s[!startsWith(s$name, "log_"), intersect(c("mean", "sd", "q5", "q95", "ess_bulk", "rhat"), names(s))]
    print(format(signif(shown, digits), drop0trailing = TRUE), quote = FALSE)
  }
  invisible(x)
}

summary.ulisse_fit <- function(object, ...) summary(object$job, ...)

coef.ulisse_fit <- function(object, ...) {
  s <- summary(object)
  s <- s[!startsWith(s$name, "log_"), ]
  stats::setNames(s$mean, s$name)
}

nobs.ulisse_fit <- function(object, ...) job_summary(object$job)$n

formula.ulisse_fit <- function(x, ...) x$formula

predict.ulisse_fit <- function(object, newdata = NULL, probs = c(0.025, 0.975), latent = FALSE, draws = NULL, ...) {
  p <- predict(object$job, rows_of(object, newdata), probs, latent, draws)
  attr(p, "log_density") <- NULL
  p
}

fitted.ulisse_fit <- function(object, ...) predict(object, probs = numeric(), latent = TRUE)$Estimate

residuals.ulisse_fit <- function(object, ...) as.numeric(rows_of(object, NULL)[[object$target]]) - fitted(object)

log_score <- function(object, newdata) {
  density <- attr(predict(object$job, rows_of(object, newdata), numeric()), "log_density")
  if (is.null(density)) fail("bad_input", sprintf("newdata: the target %s is not known there", object$target))
  mean(density)
}

update.ulisse_fit <- function(object, formula., ..., evaluate = TRUE) {
  call <- object$call
  if (!missing(formula.)) call$formula <- stats::update(formula(object), formula.)
  more <- match.call(expand.dots = FALSE)$...
  for (name in names(more)) call[[name]] <- more[[name]]
  if (evaluate) eval(call, parent.frame()) else call
}

as_draws.ulisse_fit <- function(x, ...) as_draws_df(x$job)
as_draws_df.ulisse_fit <- function(x, ...) as_draws_df(x$job)
as_draws_array.ulisse_fit <- function(x, ...) as_draws_array(x$job)
as_draws_matrix.ulisse_fit <- function(x, ...) as_draws_matrix(x$job)
as_draws_rvars.ulisse_fit <- function(x, ...) as_draws_rvars(x$job)

plot.ulisse_fit <- function(x, variable = NULL, ...) {
  d <- as_draws_df(x)
  names <- posterior::variables(d)
  if (is.null(variable)) variable <- names[!startsWith(names, "log_")]
  chosen <- names[names %in% variable | sub("\\[.*", "", names) %in% variable]
  if (!length(chosen)) fail("bad_input", sprintf("variable: there is no %s: there are %s", paste(variable, collapse = ", "), paste(names, collapse = ", ")))
  shown <- utils::head(chosen, 6)
  old <- graphics::par(mfrow = c(length(shown), 2), mar = c(2, 4, 1, 1))
  on.exit(graphics::par(old))
  colours <- grDevices::hcl.colors(max(2, posterior::nchains(d)), "Dark 3")
  for (name in shown) {
    values <- split(d[[name]], d$.chain)
    graphics::plot(stats::density(d[[name]]), main = "", ylab = name, xlab = "", ...)
    graphics::matplot(do.call(cbind, values), type = "l", lty = 1, lwd = 0.5, col = colours, ylab = "", xlab = "")
  }
  if (length(chosen) > length(shown)) message(sprintf("%d more: choose with variable =", length(chosen) - length(shown)))
  invisible(x)
}
