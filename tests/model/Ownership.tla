------------------------------ MODULE Ownership ------------------------------
(* Fence, claim, lease and takeover of one partition of the state topic, and what its owners tell the members of one *)
(* consumer group about one partition x of a user's topic. The comment above each action names the code that takes it. *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Sidecars, Members,
    NoOne,          \* no sidecar, no member
    Lease,          \* length of a lease in ticks (ownership.proof_ms)
    MaxGeneration,  \* generations of the owners' group
    MaxEpoch,       \* fences
    MaxLog,         \* records
    Bug             \* "none", or the name of a planted bug

VARIABLES
    generation, assignee, joined,   \* the owners' group at the broker: generation, owner of the partition, members
    known,          \* sidecar -> what it knows of the group: "none", or the map of an "older", "old", or "current" generation
    phase, epoch,   \* sidecar -> phase of core/runtime/lifecycle.py, and the producer epoch of its writer
    holder,         \* sidecar -> member that owns x, in the memory of this sidecar
    batch,          \* sidecar -> kind of the batch that waits for the broker's verdict
    verdict,        \* sidecar -> what the broker said to it
    lease,          \* sidecar -> ticks left of the lease that the owners' group gave
    confirming,     \* sidecar -> ticks of lease that a commit under way will give, + 1; 0: none is under way
    proof,          \* sidecar -> ticks left of the lease that a fenced write gave (proved_until)
    proving,        \* sidecar -> ticks of lease that the proof under way will give
    doubt,          \* sidecar -> ticks until it may remove a member for silence (doubt_until_ms)
    missed,         \* sidecar -> "no"; "yes": it missed a map, so the group's lease does not count; "proving": a proof is sent since
    said,           \* sidecar -> generation up to which it has said that it answers for nothing that others were given
    claimedIn,      \* sidecar -> generation that its claim names
    confirmed,      \* sidecars to which the broker has confirmed, since their last fence, that their map is the newest
    producerEpoch,  \* the partition's transactional id at the broker
    network,        \* batches sent and not yet seen by the broker
    log,            \* the partition of the state topic
    believes,       \* members that take themselves for the owner of x
    told,           \* members that were told they own x, and have neither given it up nor been removed since
    asks,           \* member -> the sidecar that it asked last: it takes no late answer of another one
    early           \* an answer left before its record was in the log

vars == <<generation, assignee, joined, known, phase, epoch, holder, batch, verdict, lease,
          confirming, proof, proving, doubt, missed, said, claimedIn, confirmed, producerEpoch, network, log, believes, told, asks, early>>
group == <<generation, assignee, joined>>
leases == <<lease, confirming, proof, proving, doubt, missed>>
words == <<said, claimedIn, confirmed>>
broker == <<producerEpoch, network, log>>
writer == <<epoch, batch, verdict>>
clients == <<believes, told, asks, early>>

Symmetric == Permutations(Sidecars) \cup Permutations(Members)

------------------------------------------------------------------------------
Is(name) == Bug = name
Less(n) == IF n > 0 THEN n - 1 ELSE 0
Leased(s) == (lease[s] > 0 /\ missed[s] = "no") \/ proof[s] > 0
CanAnswer(s) == Leased(s) \/ Is("no lease")
Serves(s) == phase[s] = "serving"

\* Who owns x after the first n records.
RECURSIVE Fold(_)
Fold(n) == IF n = 0 THEN NoOne ELSE IF log[n].kind = "own" THEN log[n].value ELSE Fold(n - 1)

\* Index of the claim of this epoch, 0 if there is none.
ClaimAt(e) == IF \E i \in 1..Len(log) : log[i].kind = "claim" /\ log[i].epoch = e
              THEN CHOOSE i \in 1..Len(log) : log[i].kind = "claim" /\ log[i].epoch = e
              ELSE 0

\* Another claim stands in the log behind the one of this sidecar.
Superseded(s) == /\ ClaimAt(epoch[s]) > 0
                 /\ \E i \in 1..Len(log) : log[i].kind = "claim" /\ i > ClaimAt(epoch[s])

\* core/runtime/owner.py Owner._drop: the state in memory is forgotten. A batch that was sent may still reach the broker.
Drop(s, to) == /\ phase' = [phase EXCEPT ![s] = to]
               /\ holder' = [holder EXCEPT ![s] = NoOne]
               /\ epoch' = [epoch EXCEPT ![s] = 0]
               /\ batch' = [batch EXCEPT ![s] = "none"]
               /\ verdict' = [verdict EXCEPT ![s] = "none"]
               /\ proof' = [proof EXCEPT ![s] = 0]
               /\ proving' = [proving EXCEPT ![s] = 0]
               /\ doubt' = [doubt EXCEPT ![s] = 0]
               /\ missed' = [missed EXCEPT ![s] = "no"]

Waits(s, b) == epoch[s] = b.epoch /\ batch[s] = b.kind /\ verdict[s] = "none"

Send(s, kind, value) == /\ batch' = [batch EXCEPT ![s] = kind]
                        /\ network' = network \cup {[epoch |-> epoch[s], kind |-> kind, value |-> value]}

\* One sidecar has owned the partition for long; what it told the members of the group is still to come.
Init == /\ generation = 1 /\ joined = Sidecars /\ assignee \in Sidecars
        /\ known = [s \in Sidecars |-> "current"]
        /\ phase = [s \in Sidecars |-> IF s = assignee THEN "serving" ELSE "elsewhere"]
        /\ epoch = [s \in Sidecars |-> IF s = assignee THEN 1 ELSE 0]
        /\ holder = [s \in Sidecars |-> NoOne]
        /\ batch = [s \in Sidecars |-> "none"]
        /\ verdict = [s \in Sidecars |-> "none"]
        /\ lease = [s \in Sidecars |-> 0]
        /\ confirming = [s \in Sidecars |-> 0]
        /\ proof = [s \in Sidecars |-> 0]
        /\ proving = [s \in Sidecars |-> 0]
        /\ doubt = [s \in Sidecars |-> 0]
        /\ missed = [s \in Sidecars |-> "no"]
        /\ said = [s \in Sidecars |-> 0]
        /\ claimedIn = [s \in Sidecars |-> 0]
        /\ confirmed = {assignee}
        /\ producerEpoch = 1 /\ network = {} /\ log = <<[epoch |-> 1, kind |-> "claim", value |-> NoOne]>>
        /\ believes = {} /\ told = {} /\ early = FALSE
        /\ asks = [m \in Members |-> NoOne]

------------------------------------------------------------------------------
(* The owners' group *)

NextGeneration == /\ generation' = generation + 1
                  /\ known' = [s \in Sidecars |-> CASE known[s] = "current" -> "old" [] known[s] = "old" -> "older"
                                                [] OTHER -> known[s]]

\* sidecar/coordinator/membership/owners_group.py OwnersGroup._join_at
\* A sidecar comes anew; all others have joined the new generation, though they may not know its assignment yet.
Join(s) == /\ s \notin joined /\ known[s] = "none" /\ generation < MaxGeneration
           /\ NextGeneration
           /\ joined' = joined \cup {s}
           /\ assignee' \in joined'
           /\ UNCHANGED <<phase, holder, writer, leases, broker, clients, words>>

\* sidecar/coordinator/membership/owners_group.py OwnersGroup._remove
\* A peer had it removed, rightly or not, or its session has ended.
Removed(s) == /\ s \in joined /\ generation < MaxGeneration
              /\ NextGeneration
              /\ joined' = joined \ {s}
              /\ assignee' \in IF joined' = {} THEN {NoOne} ELSE joined'
              /\ UNCHANGED <<phase, holder, writer, leases, broker, clients, words>>

\* sidecar/coordinator/membership/owners_group.py OwnersGroup.placement_changed
Moved == /\ generation < MaxGeneration
         /\ NextGeneration
         /\ assignee' \in joined \ {assignee}
         /\ said' = IF Is("said too early") THEN [said EXCEPT ![assignee] = generation'] ELSE said
         /\ UNCHANGED <<joined, phase, holder, writer, leases, claimedIn, confirmed, broker, clients>>

\* sidecar/core/runtime/service.py Service.assigned
\* The SyncGroup of the current generation is answered. An owner that must give the partition up drops it, and then says
\* so (coordinator/membership/giving_up.py). What is served already goes on being served. If the sidecar has missed a map,
\* a takeover begins anew, and what is served must be proved: no lease of before counts (Service.map_missed).
Assigned(s) == /\ s \in joined /\ known[s] # "current"
               /\ known' = [known EXCEPT ![s] = "current"]
               /\ confirming' = [confirming EXCEPT ![s] = 0]
               /\ LET older == known[s] = "older" /\ ~Is("missed map")
                  IN IF assignee # s THEN Drop(s, "elsewhere")
                     ELSE IF phase[s] = "elsewhere" \/ (older /\ ~Serves(s)) THEN Drop(s, "fencing")
                     ELSE /\ missed' = [missed EXCEPT ![s] = IF older THEN "yes" ELSE @]
                          /\ proof' = [proof EXCEPT ![s] = IF older /\ ~Is("older proof") THEN 0 ELSE @]
                          /\ proving' = [proving EXCEPT ![s] = IF older /\ ~Is("older proof") THEN 0 ELSE @]
                          /\ UNCHANGED <<phase, holder, writer, doubt>>
               /\ \E other \in BOOLEAN :  \* another partition may have been taken from it
                    said' = IF phase[s] # "elsewhere" /\ (assignee # s \/ other) THEN [said EXCEPT ![s] = generation]
                            ELSE said
               /\ UNCHANGED <<group, lease, claimedIn, confirmed, broker, clients>>

\* sidecar/coordinator/membership/owners_group.py OwnersGroup._lost
\* It is told UNKNOWN_MEMBER_ID, withdraws, or its process starts anew. Under the member id that it had it answers for
\* nothing any more, and says so.
Lost(s) == /\ known[s] # "none"
           /\ known' = [known EXCEPT ![s] = "none"]
           /\ confirming' = [confirming EXCEPT ![s] = 0]
           /\ lease' = [lease EXCEPT ![s] = 0]
           /\ Drop(s, "elsewhere")
           /\ said' = [said EXCEPT ![s] = MaxGeneration + 1]
           /\ UNCHANGED <<group, claimedIn, confirmed, broker, clients>>

\* sidecar/coordinator/membership/lease_commit.py LeaseCommits._commit
\* The broker writes a commit of a member of the current generation.
Confirm(s) == /\ s \in joined /\ known[s] = "current"
              /\ phase[s] # "elsewhere" /\ lease[s] = 0 /\ confirming[s] = 0
              /\ confirming' = [confirming EXCEPT ![s] = Lease + 1]
              /\ UNCHANGED <<group, known, phase, holder, writer, lease, proof, proving, doubt, missed,
                             broker, clients, words>>

\* sidecar/coordinator/membership/member_lease.py MemberLease.committed
\* Its answer: the lease counts from when the commit was sent.
Confirmed(s) == /\ confirming[s] > 0
                /\ LET left == IF Is("lease from the answer") THEN Lease ELSE confirming[s] - 1
                   IN lease' = [lease EXCEPT ![s] = IF left > @ THEN left ELSE @]
                /\ confirming' = [confirming EXCEPT ![s] = 0]
                /\ UNCHANGED <<group, known, phase, holder, writer, proof, proving, doubt, missed,
                               broker, clients, words>>

------------------------------------------------------------------------------
(* Takeover *)

\* sidecar/coordinator/statelog/fence.py Fence.take
\* The broker may execute it while the sidecar is suspended. Batches for whose verdict nobody waits any more could only
\* be refused from here on.
Fence(s) == /\ phase[s] = "fencing" /\ producerEpoch < MaxEpoch
            /\ producerEpoch' = producerEpoch + 1
            /\ epoch' = [epoch EXCEPT ![s] = producerEpoch']
            /\ phase' = [phase EXCEPT ![s] = "fenced"]
            /\ network' = {b \in network : Is("no fence") \/ \E t \in Sidecars : Waits(t, b)}
            /\ confirmed' = confirmed \ {s}
            /\ UNCHANGED <<group, known, holder, batch, verdict, leases, log, clients, said, claimedIn>>

\* sidecar/coordinator/runtime/takeovers.py Takeovers._claim
Claim(s) == /\ phase[s] = "fenced"
            /\ phase' = [phase EXCEPT ![s] = "claiming"]
            /\ Send(s, "claim", NoOne)
            /\ claimedIn' = [claimedIn EXCEPT ![s] = generation - CASE known[s] = "current" -> 0 [] known[s] = "old" -> 1 [] OTHER -> 2]
            /\ said' = [said EXCEPT ![s] = IF @ > MaxGeneration THEN 0 ELSE @]
            /\ UNCHANGED <<group, known, holder, epoch, verdict, leases, confirmed, producerEpoch, log, clients>>

\* sidecar/coordinator/membership/owners_heartbeat.py OwnersHeartbeats._map_confirmed
\* The broker, asked after the fence, answers a heartbeat in the generation of the map that the sidecar knows.
MapConfirmed(s) == /\ phase[s] \in {"fenced", "claiming", "replaying"} /\ s \notin confirmed
                   /\ s \in joined /\ known[s] = "current"
                   /\ confirmed' = confirmed \cup {s}
                   /\ UNCHANGED <<group, known, phase, holder, writer, leases, broker, clients, said, claimedIn>>

\* sidecar/core/runtime/lifecycle.py Lifecycle.claimed
Claimed(s) == /\ phase[s] = "claiming"
              /\ verdict[s] = "written" \/ (Is("claim not checked") /\ verdict[s] = "refused")
              /\ phase' = [phase EXCEPT ![s] = "replaying"]
              /\ batch' = [batch EXCEPT ![s] = "none"]
              /\ verdict' = [verdict EXCEPT ![s] = "none"]
              /\ UNCHANGED <<group, known, holder, epoch, leases, broker, clients, words>>

\* sidecar/core/runtime/owner.py Owner.replayed
\* The log through the own claim is read. From now on former owners may have leases for one lease at most.
Replayed(s) == /\ phase[s] = "replaying"
               /\ s \in confirmed \/ Is("map not confirmed")
               /\ phase' = [phase EXCEPT ![s] = "serving"]
               /\ \E n \in IF Is("serve before replay") THEN 0..ClaimAt(epoch[s]) ELSE {ClaimAt(epoch[s])} :
                     holder' = [holder EXCEPT ![s] = Fold(n)]
               /\ doubt' = [doubt EXCEPT ![s] = IF Is("remove at once") THEN 0 ELSE Lease]
               /\ UNCHANGED <<group, known, writer, lease, confirming, proof, proving, missed, broker, clients, words>>

\* sidecar/coordinator/membership/former_owners.py FormerOwners.look_again
\* The former owner has said that it answers no more since the generation of this one's claim.
Cleared(s) == /\ Serves(s) /\ doubt[s] > 0
              /\ \A t \in Sidecars \ {s} : said[t] >= claimedIn[s]
              /\ doubt' = [doubt EXCEPT ![s] = 0]
              /\ UNCHANGED <<group, known, phase, holder, writer, lease, confirming, proof, proving, missed, broker, clients, words>>

\* sidecar/coordinator/runtime/takeovers.py Takeovers._still_mine
\* The tail has read the claim of another owner.
ClaimRead(s) == /\ phase[s] \in {"replaying", "serving"} /\ Superseded(s)
                /\ Drop(s, "pausing")
                /\ UNCHANGED <<group, known, lease, confirming, broker, clients, words>>

\* sidecar/core/runtime/owner.py Owner.failed
Failed(s) == /\ verdict[s] = "refused" /\ ~(Is("claim not checked") /\ phase[s] = "claiming")
             /\ Drop(s, "pausing")
             /\ UNCHANGED <<group, known, lease, confirming, broker, clients, words>>

\* sidecar/core/runtime/owner.py Owner.wake
\* A pause is over: it takes the partition again, while it has a lease, once the broker has confirmed its map.
Rested(s) == /\ phase[s] = "pausing" /\ CanAnswer(s)
             /\ s \in joined /\ known[s] = "current"
             /\ phase' = [phase EXCEPT ![s] = "fencing"]
             /\ UNCHANGED <<group, known, holder, writer, leases, broker, clients, words>>

------------------------------------------------------------------------------
(* The log *)

\* sidecar/coordinator/statelog/fenced_writer.py FencedWriter._put
\* The broker gets a batch, at any time, and appends it if its epoch is the current one. A member whose loss of x is
\* written is not an owner any more: it gave x up before, or was removed.
Put == \E b \in network :
          /\ LET good == b.epoch = producerEpoch \/ Is("no fence")
             IN /\ good => Len(log) < MaxLog
                /\ log' = IF good /\ b.kind \in {"claim", "own"} THEN Append(log, b) ELSE log
                /\ told' = IF good /\ b.kind = "own" THEN told \cap {b.value} ELSE told
                /\ verdict' = [s \in Sidecars |-> IF ~Waits(s, b) THEN verdict[s]
                                                  ELSE IF good THEN "written" ELSE "refused"]
          /\ network' = network \ {b}
          /\ UNCHANGED <<group, known, phase, holder, epoch, batch, leases, producerEpoch,
                         believes, asks, early, words>>

------------------------------------------------------------------------------
(* Serving *)

Tell(m, written) == /\ believes' = believes \cup {m}
                    /\ told' = told \cup {m}
                    /\ early' = (early \/ ~written)

Turn(s) == Serves(s) /\ CanAnswer(s) /\ batch[s] = "none"

\* sidecar/core/consumer/reconcile.py reconcile
\* x is free: it is assigned to a member that asks.
Assign(s, m) == /\ Turn(s) /\ holder[s] = NoOne
                /\ holder' = [holder EXCEPT ![s] = m]
                /\ Send(s, "own", m)
                /\ IF Is("reply before commit") THEN Tell(m, FALSE) ELSE UNCHANGED <<believes, told, early>>
                /\ asks' = [asks EXCEPT ![m] = s]
                /\ UNCHANGED <<group, known, phase, epoch, verdict, leases, producerEpoch, log, words>>

\* sidecar/core/consumer/step.py advance
\* A member has given x up and says so.
GiveUp(s, m) == /\ Turn(s) /\ holder[s] = m
                /\ m \in believes
                /\ believes' = believes \ {m}
                /\ told' = told \ {m}
                /\ holder' = [holder EXCEPT ![s] = NoOne]
                /\ Send(s, "own", NoOne)
                /\ asks' = [asks EXCEPT ![m] = s]
                /\ UNCHANGED <<group, known, phase, epoch, verdict, leases, producerEpoch, log, early, words>>

\* sidecar/core/runtime/turn.py Turn.arm_removal
\* A member is removed for silence, or because it did not come to a rebalance in time.
RemoveSilent(s, m) == /\ Turn(s) /\ holder[s] = m /\ doubt[s] = 0
                      /\ holder' = [holder EXCEPT ![s] = NoOne]
                      /\ Send(s, "own", NoOne)
                      /\ UNCHANGED <<group, known, phase, epoch, verdict, leases, producerEpoch, log,
                                     clients, words>>

\* sidecar/core/runtime/owner.py Owner.committed
\* The answer that waited for the record is released, or is NOT_COORDINATOR if there is no lease any more.
Release(s) == /\ Serves(s) /\ verdict[s] = "written" /\ batch[s] \in {"own", "answer"}
              /\ batch' = [batch EXCEPT ![s] = "none"]
              /\ verdict' = [verdict EXCEPT ![s] = "none"]
              /\ IF holder[s] # NoOne /\ asks[holder[s]] = s /\ (CanAnswer(s) \/ Is("release without lease"))
                 THEN Tell(holder[s], batch[s] = "answer" \/ \E i \in 1..Len(log) : log[i].epoch = epoch[s] /\ log[i].value = holder[s])
                 ELSE UNCHANGED <<believes, told, early>>
              /\ UNCHANGED <<group, known, phase, holder, epoch, leases, broker, words, asks>>

\* sidecar/core/runtime/service.py Service.request
\* A member that takes itself for the owner of x asks, and is answered from memory, by the owner or under its grant.
Heartbeat(s, m) == /\ Turn(s)
                   /\ m \in believes \/ (Is("given again from memory") /\ holder[s] = m)
                   /\ IF holder[s] = m THEN Tell(m, TRUE)
                      ELSE /\ believes' = believes \ {m}
                           /\ told' = told \ {m}
                           /\ UNCHANGED early
                   /\ asks' = [asks EXCEPT ![m] = s]
                   /\ UNCHANGED <<group, known, phase, holder, writer, leases, broker, words>>

\* sidecar/core/consumer/step.py step
\* A member that does not own x, although the record says so, asks: its answer was lost, or it has given x up, perhaps to
\* another owner. The answer that gives it x again waits for a fenced write.
AskAgain(s, m) == /\ Turn(s) /\ holder[s] = m /\ m \notin believes
                  /\ Send(s, "answer", m)
                  /\ asks' = [asks EXCEPT ![m] = s]
                  /\ UNCHANGED <<group, known, phase, holder, epoch, verdict, leases, producerEpoch, log, believes, told, early, words>>

\* sidecar/coordinator/runtime/lease_proofs.py LeaseProofs.look
\* Only where the group confirms nothing, or its lease does not count: else Confirm gives at least as much.
Prove(s) == /\ Serves(s) /\ batch[s] = "none"
            /\ missed[s] = "yes" \/ (known[s] # "current" /\ lease[s] = 0 /\ proof[s] < Lease)
            /\ missed' = [missed EXCEPT ![s] = IF @ = "yes" THEN "proving" ELSE @]
            /\ proving' = [proving EXCEPT ![s] = Lease]
            /\ Send(s, "proof", NoOne)
            /\ UNCHANGED <<group, known, phase, holder, epoch, verdict, lease, confirming, proof,
                           doubt, producerEpoch, log, clients, words>>

\* sidecar/core/runtime/owner.py Owner.proved
\* The lease counts from when the proof was sent.
Proved(s) == /\ Serves(s) /\ batch[s] = "proof" /\ verdict[s] = "written"
             /\ batch' = [batch EXCEPT ![s] = "none"]
             /\ verdict' = [verdict EXCEPT ![s] = "none"]
             /\ proof' = [proof EXCEPT ![s] = proving[s]]
             /\ proving' = [proving EXCEPT ![s] = 0]
             /\ missed' = [missed EXCEPT ![s] = IF @ = "proving" THEN "no" ELSE @]
             /\ UNCHANGED <<group, known, phase, holder, epoch, lease, confirming, doubt, broker,
                            clients, words>>

------------------------------------------------------------------------------
(* Time *)

\* sidecar/coordinator/clock.py now
\* Clocks go on for all, also for a sidecar that stands still: that one just does nothing.
Tick == /\ lease' = [s \in Sidecars |-> Less(lease[s])]
        /\ proof' = [s \in Sidecars |-> Less(proof[s])]
        /\ proving' = [s \in Sidecars |-> Less(proving[s])]
        /\ doubt' = [s \in Sidecars |-> Less(doubt[s])]
        /\ confirming' = [s \in Sidecars |-> IF confirming[s] > 1 THEN confirming[s] - 1 ELSE confirming[s]]
        /\ UNCHANGED missed
        /\ leases' # leases
        /\ UNCHANGED <<group, known, phase, holder, writer, broker, clients, words>>

------------------------------------------------------------------------------
Next == \/ Moved \/ Put \/ Tick
        \/ \E s \in Sidecars : \/ Join(s) \/ Removed(s) \/ Assigned(s) \/ Lost(s) \/ Confirm(s) \/ Confirmed(s)
                               \/ Fence(s) \/ Claim(s) \/ Claimed(s) \/ Replayed(s) \/ ClaimRead(s) \/ Failed(s)
                               \/ Cleared(s) \/ MapConfirmed(s)
                               \/ Rested(s) \/ Release(s) \/ Prove(s) \/ Proved(s)
        \/ \E s \in Sidecars, m \in Members : Assign(s, m) \/ GiveUp(s, m) \/ RemoveSilent(s, m) \/ Heartbeat(s, m) \/ AskAgain(s, m)

Spec == Init /\ [][Next]_vars

------------------------------------------------------------------------------
(* What is promised *)

\* No member is told that it owns x while another one was told so, and has neither given it up nor been removed.
OneOwner == Cardinality(told) <= 1

\* No answer leaves before its record is in the log.
NothingEarly == ~early

\* An owner that holds the fence knows what the log says, and with it every record that was acknowledged.
NothingLost == \A s \in Sidecars : (phase[s] = "serving" /\ epoch[s] = producerEpoch /\ batch[s] = "none") =>
                   holder[s] = Fold(Len(log))

\* Behind a claim stands no record of an earlier epoch.
FencedOut == \A i, j \in 1..Len(log) : (i < j /\ log[i].kind = "claim") => log[j].epoch >= log[i].epoch

\* When an owner may remove members for silence, no former owner can answer any more.
LeasesEnd == \A s, t \in Sidecars : (phase[s] = "serving" /\ epoch[s] = producerEpoch /\ doubt[s] = 0
                                     /\ phase[t] = "serving" /\ epoch[t] < epoch[s]) => ~Leased(t)
=============================================================================
