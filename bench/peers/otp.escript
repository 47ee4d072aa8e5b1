#!/usr/bin/env escript
%% The works of bench/ in Erlang, in this order of arguments:
%%
%%   call  ACTORS OPERATIONS    gen_server:call, a caller for each server
%%   cast  ACTORS OPERATIONS    gen_server:cast, and a call behind the last
%%   spawn AT_ONCE PROGRAMS ARGV0   ports that end
%%   idle  SERVERS              named servers under one supervisor
%%   keep  SERVERS SHELL FIFO   a port each under one supervisor, until stdin ends; what a program says goes to FIFO
%%
%%   hear  CHILDREN RATE SECONDS PYTHON PROGRAM   a port and a process for each ticker of bench.fleet
%%
%% All but `keep` time themselves and print one line of figures: seconds of wall time and of the CPU of the whole
%% emulator; for `hear`, also bytes resident, and the delay of
%% each event in seconds; for `idle`, bytes that it allocated, bytes resident, and CPU microseconds to start and stop, of each.
%% A wrong answer ends the program with a status other than 0.
-module(otp).
-mode(compile).
-export([main/1, init/1, handle_call/3, handle_cast/2, handle_info/2, start_server/2]).

main([Work | Arguments]) ->
    logger:set_primary_config(level, none),
    work(Work, Arguments).

work("call", [Actors, Operations]) ->
    mailbox(number(Actors), number(Operations), fun call/2);
work("cast", [Actors, Operations]) ->
    mailbox(number(Actors), number(Operations), fun cast/2);
work("spawn", [AtOnce, Programs, Argv0]) ->
    Times = number(Programs) div number(AtOnce),
    report(clocked([fun() -> ports(Argv0, Times) end || _ <- lists:seq(1, number(AtOnce))]));
work("idle", [Servers]) ->
    idle(number(Servers));
work("hear", [Children, Rate, Seconds, Python, Program]) ->
    hear(number(Children), Rate, number(Seconds), Python, Program);
work("keep", [Servers, Shell, Fifo]) ->
    {ok, _} = supervisor:start_link(otp, {tree, number(Servers), {port, Shell, Fifo}}),
    eof = io:get_line(""),
    halt(0).

number(Text) -> list_to_integer(Text).

hear(Children, Rate, Seconds, Python, Program) ->
    Self = self(),
    Held = resident(),
    Ears = [spawn_link(fun() ->
        Phase = io_lib:format("~.6f", [math:fmod(Number * 0.618, 1.0)]),
        Arguments = ["-I", "-S", Program, Rate, lists:flatten(Phase)],
        Port = open_port({spawn_executable, Python}, [{args, Arguments}, {line, 4096}, binary]),
        port_command(Port, <<"go\n">>),
        receive {Port, _} -> Self ! up end,
        ear(Port, off, [])
    end) || Number <- lists:seq(0, Children - 1)],
    [receive up -> ok end || _ <- Ears],
    timer:sleep(1000),
    {Cpu, _} = statistics(runtime),
    Wall = erlang:monotonic_time(),
    [Ear ! on || Ear <- Ears],
    timer:sleep(Seconds * 1000),
    [Ear ! {tell, Self} || Ear <- Ears],
    Nanoseconds = erlang:convert_time_unit(erlang:monotonic_time() - Wall, native, nanosecond),
    Used = element(1, statistics(runtime)) - Cpu,
    Bytes = resident() - Held,
    Delays = lists:append([receive {delays, Told} -> Told end || _ <- Ears]),
    report([Nanoseconds / 1.0e9, Used / 1.0e3, Bytes | Delays]).

ear(Port, State, Delays) ->
    receive
        {Port, {data, {eol, Line}}} when State =:= on ->
            [_, Rest] = binary:split(Line, <<"\"text\":\"">>),
            [Said, _] = binary:split(Rest, <<"\"">>),
            ear(Port, on, [os:system_time(microsecond) / 1.0e6 - binary_to_float(Said) | Delays]);
        {Port, _} -> ear(Port, State, Delays);
        on -> ear(Port, on, Delays);
        {tell, To} -> To ! {delays, Delays}, ear(Port, off, [])
    end.

mailbox(Actors, Operations, Send) ->
    Servers = [element(2, {ok, _} = gen_server:start_link(otp, counter, [])) || _ <- lists:seq(1, Actors)],
    report(clocked([fun() -> Send(Server, Operations div Actors) end || Server <- Servers])).

call(_, 0) -> ok;
call(Server, Times) ->
    Times = gen_server:call(Server, Times),
    call(Server, Times - 1).

cast(Server, Times) ->
    [gen_server:cast(Server, Number) || Number <- lists:seq(1, Times)],
    Times = gen_server:call(Server, count, infinity).

ports(_, 0) -> ok;
ports(Argv0, Times) ->
    Port = open_port({spawn_executable, Argv0}, [exit_status]),
    receive {Port, {exit_status, 0}} -> ports(Argv0, Times - 1) end.

%% All wait before the clock starts; it stops when the last has ended.
clocked(Jobs) ->
    Gated = [spawn_monitor(fun() -> receive go -> Job() end end) || Job <- Jobs],
    {Cpu, _} = statistics(runtime),
    Wall = erlang:monotonic_time(),
    [Pid ! go || {Pid, _} <- Gated],
    [receive {'DOWN', Monitor, _, _, Reason} -> normal = Reason end || {_, Monitor} <- Gated],
    Nanoseconds = erlang:convert_time_unit(erlang:monotonic_time() - Wall, native, nanosecond),
    [Nanoseconds / 1.0e9, (element(1, statistics(runtime)) - Cpu) / 1.0e3].

report(Figures) ->
    io:format("~s~n", [lists:join(" ", [io_lib:format("~.9f", [float(Figure)]) || Figure <- Figures])]).

idle(Servers) ->
    process_flag(trap_exit, true),
    {Held, Resident} = {erlang:memory(total), resident()},
    {Started, Start} = used(fun() -> supervisor:start_link(otp, {tree, Servers, idle}) end),
    {ok, Tree} = Started,
    [erlang:garbage_collect(Pid) || Pid <- processes()],
    Bytes = [erlang:memory(total) - Held, resident() - Resident],
    {_, Stop} = used(fun() ->
        exit(Tree, shutdown),
        receive {'EXIT', Tree, shutdown} -> ok end
    end),
    report([Figure / Servers || Figure <- Bytes ++ [Start, Stop]]).

used(Work) ->
    {Before, _} = statistics(runtime),
    Result = Work(),
    {Result, (element(1, statistics(runtime)) - Before) * 1000}.

resident() ->
    case file:read_file("/proc/" ++ os:getpid() ++ "/status") of
        {ok, Status} ->
            {match, [Kibibytes]} = re:run(Status, "VmRSS:\\s+(\\d+)", [{capture, [1], list}]),
            number(Kibibytes) * 1024;
        {error, _} ->
            0
    end.

start_server(Number, Kind) ->
    gen_server:start_link({local, list_to_atom("server" ++ integer_to_list(Number))}, otp, Kind, []).

init({tree, Servers, Kind}) ->
    Specs = [#{id => Number, start => {otp, start_server, [Number, Kind]}} || Number <- lists:seq(1, Servers)],
    {ok, {#{strategy => one_for_one, intensity => 1000000, period => 1000000}, Specs}};
init({port, Shell, Fifo}) ->
    {ok, {open_port({spawn_executable, "/bin/sh"}, [{args, ["-c", Shell]}, {line, 80}, exit_status]), Fifo}};
init(idle) ->
    {ok, 0};
init(counter) ->
    {ok, 0}.

handle_call(count, _, Count) -> {reply, Count, Count};
handle_call(Message, _, Count) -> {reply, Message, Count}.

handle_cast(_, Count) -> {noreply, Count + 1}.

handle_info({Port, {data, {eol, Line}}}, {Port, Fifo}) ->
    ok = file:write_file(Fifo, [Line, $\n], [raw, append]),
    {noreply, {Port, Fifo}};
handle_info({Port, {exit_status, Status}}, {Port, Fifo}) ->
    {stop, {exit_status, Status}, {Port, Fifo}}.
