-- Asks `ratelimit` before HAProxy lets a request pass.
--
--     global
--         lua-load-per-thread /etc/haproxy/ratelimit.lua
--     frontend ...
--         http-request lua.ratelimit
--
-- An action cannot refuse by itself; it sets variables of the transaction, and haproxy.cfg beside this file shows
-- what to do with them:
--
--     txn.ratelimit_deny         true if the request is to be refused
--     txn.ratelimit_failed       true if ratelimit did not answer, or could not decide
--     txn.ratelimit_limit, txn.ratelimit_remaining, txn.ratelimit_retry_after, txn.ratelimit_fields,
--     txn.ratelimit_policy       what the client may be told; absent where there is nothing to tell
--
-- The client's address is the source address that HAProxy sees. Behind another proxy, trust that one in
-- ratelimit's `trusted_proxies` and set `client_address`: the headers of the request go along.

-- Where ratelimit listens: an address and a port, or a Unix socket as in "unix@/run/ratelimit/http.sock".
local ADDRESS = os.getenv("RATELIMIT_ADDRESS") or "127.0.0.1"
local PORT = not ADDRESS:find("^unix@") and tonumber(os.getenv("RATELIMIT_PORT") or "8081") or nil

-- How long to wait for ratelimit, in milliseconds.
local TIMEOUT = tonumber(os.getenv("RATELIMIT_TIMEOUT_MS") or "200")

-- What ratelimit knows this HAProxy by, if it is neither on its host nor in its `allow_from`.
local TOKEN = os.getenv("RATELIMIT_TOKEN")

-- Whether requests pass without an answer. One that the question is wrong or not permitted is one and refuses,
-- or a client could get past by asking for something that cannot be decided.
local FAIL_OPEN = os.getenv("RATELIMIT_FAIL_OPEN") ~= "false"

-- A string of JSON. Bytes beyond ASCII are written as the characters of Latin-1, so that whatever a client sends
-- makes a valid text and is told apart.
local function quote(text)
    return '"' .. text:gsub('[%c"\\\127-\255]', function(char)
        return string.format("\\u%04x", char:byte())
    end) .. '"'
end

local function question(txn)
    local headers = {}
    for name, values in pairs(txn.http:req_get_headers()) do
        local quoted = {}
        for index = 0, #values do
            -- What no header may have would make the question invalid.
            quoted[#quoted + 1] = quote((values[index]:gsub("[%c\127]", "?")))
        end
        headers[#headers + 1] = quote(name) .. ":[" .. table.concat(quoted, ",") .. "]"
    end
    local peer = txn.f:src()
    return '{"request":{"method":' .. quote(txn.f:method())
        .. ',"path":' .. quote(txn.f:pathq())
        .. (peer and peer ~= "" and ',"peer":' .. quote(peer) or "")
        .. ',"headers":{' .. table.concat(headers, ",") .. "}}}"
end

-- Reads an answer: its status, its headers by name in lower case, its body.
local function answer(socket)
    local line = socket:receive("*l")
    local status = line and tonumber(line:match("^HTTP/1%.%d (%d%d%d)"))
    if not status then
        return nil
    end
    local headers = {}
    while true do
        line = socket:receive("*l")
        if not line then
            return nil
        end
        local name, value = line:match("^([^:]+):%s*(.-)%s*$")
        if not name then
            break
        end
        headers[name:lower()] = value
    end
    local length = tonumber(headers["content-length"] or "0")
    local body = length > 0 and socket:receive(length) or ""
    return { status = status, headers = headers, body = body }
end

-- A connection of its own for each question, without `core.httpclient`: that one tries again for seconds.
local function ask(txn)
    local body = question(txn)
    local socket = core.tcp()
    socket:settimeout(TIMEOUT / 1000)
    local connected
    if PORT then
        connected = socket:connect(ADDRESS, PORT)
    else
        connected = socket:connect(ADDRESS)
    end
    if not connected then
        return nil, "no connection"
    end
    socket:send("POST /v1/check HTTP/1.0\r\nhost: ratelimit\r\ncontent-type: application/json\r\n"
        .. (TOKEN and "authorization: Bearer " .. TOKEN .. "\r\n" or "")
        .. "content-length: " .. #body .. "\r\n\r\n" .. body)
    local response = answer(socket)
    socket:close()
    if not response or response.status >= 500 then
        return nil, "no answer"
    end
    return response
end

core.register_action("ratelimit", { "http-req" }, function(txn)
    local called, response, why = pcall(ask, txn)
    local passes, failed = FAIL_OPEN, true
    if called and response then
        passes, failed = response.status == 200, response.status ~= 200 and response.status ~= 429
        why = "status " .. response.status
    end
    txn:set_var("txn.ratelimit_deny", not passes)
    txn:set_var("txn.ratelimit_failed", failed)
    if failed then
        txn:Warning("ratelimit failed: " .. tostring(called and why or response))
        return
    end
    for variable, name in pairs({
        ["txn.ratelimit_limit"] = "x-ratelimit-limit",
        ["txn.ratelimit_remaining"] = "x-ratelimit-remaining",
        ["txn.ratelimit_retry_after"] = "retry-after",
        ["txn.ratelimit_fields"] = "ratelimit",
        ["txn.ratelimit_policy"] = "ratelimit-policy",
    }) do
        local value = response.headers[name]
        if value then
            txn:set_var(variable, value)
        end
    end
    local delay = response.body:match('"delay":([%d.]+)')
    if delay then
        core.msleep(math.ceil(tonumber(delay) * 1000))
    end
end)
