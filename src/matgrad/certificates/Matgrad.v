(* Finite sums, their derivatives, and a decision procedure for equality of polynomials with sums. *)

From Coq Require Import Reals Lra Lia List Arith QArith Qreals Permutation FunctionalExtensionality.
From Coquelicot Require Import Coquelicot.
Import ListNotations.
Open Scope R_scope.

(* -- sums over 0, ..., n - 1, and deltas -- *)

Fixpoint sum (n : nat) (f : nat -> R) : R :=
  match n with O => 0 | S m => sum m f + f m end.

Definition delta (i j : nat) : R := if Nat.eqb i j then 1 else 0.

Lemma sum_ext n f g : (forall i, (i < n)%nat -> f i = g i) -> sum n f = sum n g.
Proof. induction n; simpl; intros H; [reflexivity | rewrite IHn, H; auto]. Qed.

Lemma sum_add n f g : sum n (fun i => f i + g i) = sum n f + sum n g.
Proof. induction n; simpl; [ring | rewrite IHn; ring]. Qed.

Lemma sum_mul n c f : sum n (fun i => c * f i) = c * sum n f.
Proof. induction n; simpl; [ring | rewrite IHn; ring]. Qed.

Lemma sum_zero n : sum n (fun _ => 0) = 0.
Proof. induction n; simpl; [reflexivity | rewrite IHn; ring]. Qed.

Lemma sum_const n c : sum n (fun _ => c) = INR n * c.
Proof. induction n; simpl sum; [simpl; ring | rewrite IHn, S_INR; ring]. Qed.

Lemma sum_swap m n f : sum m (fun i => sum n (fun j => f i j)) = sum n (fun j => sum m (fun i => f i j)).
Proof. induction m; simpl; [now rewrite sum_zero | now rewrite IHm, <- sum_add]. Qed.

Lemma delta_refl i : delta i i = 1.
Proof. unfold delta; now rewrite Nat.eqb_refl. Qed.

Lemma delta_neq i j : i <> j -> delta i j = 0.
Proof. unfold delta; intros H; now rewrite (proj2 (Nat.eqb_neq i j) H). Qed.

Lemma delta_sym i j : delta i j = delta j i.
Proof. unfold delta; now rewrite Nat.eqb_sym. Qed.

Lemma sum_delta n j f : (j < n)%nat -> sum n (fun i => delta i j * f i) = f j.
Proof.
  intros H; induction n as [|n IH]; [lia|]; simpl.
  destruct (Nat.eq_dec j n) as [->|E].
  - rewrite delta_refl, (sum_ext n _ (fun _ => 0)), sum_zero; [ring|].
    intros i Hi; rewrite delta_neq by lia; ring.
  - rewrite IH by lia; rewrite delta_neq by lia; ring.
Qed.

Lemma sum_nonneg n f : (forall i, (i < n)%nat -> 0 <= f i) -> 0 <= sum n f.
Proof. induction n; simpl; intros H; [lra | specialize (IHn (fun i Hi => H i (Nat.lt_lt_succ_r _ _ Hi))); specialize (H n); assert (0 <= f n) by (apply H; lia); lra]. Qed.

Lemma sum_pos n f : (0 < n)%nat -> (forall i, (i < n)%nat -> 0 < f i) -> 0 < sum n f.
Proof.
  destruct n; simpl; intros Hn H; [lia|].
  assert (0 <= sum n f) by (apply sum_nonneg; intros; left; apply H; lia).
  specialize (H n); assert (0 < f n) by (apply H; lia); lra.
Qed.

(* -- terms: polynomials in entries with sums, where indices have numbers -- *)

Definition env := nat -> nat.
Definition upd (r : env) (k v : nat) : env := fun x => if Nat.eqb x k then v else r x.

Lemma upd_same r k v : upd r k v k = v.
Proof. unfold upd; now rewrite Nat.eqb_refl. Qed.

Lemma upd_other r k v x : x <> k -> upd r k v x = r x.
Proof. unfold upd; intros H; now rewrite (proj2 (Nat.eqb_neq x k) H). Qed.

Lemma upd_swap r k v l w : k <> l -> upd (upd r k v) l w = upd (upd r l w) k v.
Proof.
  intros H; extensionality x; unfold upd.
  destruct (Nat.eqb_spec x l), (Nat.eqb_spec x k); congruence.
Qed.

Inductive term :=
  | Const (q : Q)
  | At (a : nat) (l : list nat)
  | Eq (i j : nat)
  | Plus (x y : term)
  | Times (x y : term)
  | Over (k : nat) (x : term).

Definition mem (k : nat) (l : list nat) : bool := existsb (Nat.eqb k) l.

Lemma mem_In k l : mem k l = true <-> In k l.
Proof.
  unfold mem; rewrite existsb_exists; split.
  - intros (x & H & E); apply Nat.eqb_eq in E; now subst.
  - intros H; exists k; now rewrite Nat.eqb_refl.
Qed.

Lemma mem_not k l : mem k l = false -> ~ In k l.
Proof. intros H I; apply mem_In in I; congruence. Qed.

Definition qr (q : Q) : R := match Qden q with 1%positive => IZR (Qnum q) | d => IZR (Qnum q) * / IZR (Zpos d) end.

Lemma qr_Q2R q : qr q = Q2R q.
Proof. destruct q as [n d]; unfold qr, Q2R; simpl; destruct d; try reflexivity; simpl; field. Qed.

Lemma qr_add p q : qr (p + q) = qr p + qr q.
Proof. rewrite !qr_Q2R; apply Q2R_plus. Qed.

Lemma qr_mul p q : qr (p * q) = qr p * qr q.
Proof. rewrite !qr_Q2R; apply Q2R_mult. Qed.

Lemma qr_zero q : Qeq_bool q 0 = true -> qr q = 0.
Proof. intros H; rewrite qr_Q2R, (Qeq_eqR _ _ (Qeq_bool_eq _ _ H)); unfold Q2R; simpl; ring. Qed.

Section Normal.

Variable sizes : list nat.               (* what the sizes N, D, ... are *)
Variable types : list nat.               (* the number of the size of each index *)
Variable others : list (list nat -> R).  (* atoms that are not sizes *)

Definition size (s : nat) : nat := nth s sizes 0%nat.
Definition type (k : nat) : nat := nth k types 0%nat.
Definition range (k : nat) : nat := size (type k).
Definition atom (a : nat) (l : list nat) : R :=
  match nth_error sizes a with Some n => INR n | None => nth (a - length sizes) others (fun _ => 0) l end.

Fixpoint den (r : env) (t : term) : R :=
  match t with
  | Const q => qr q
  | At a l => atom a (map r l)
  | Eq i j => delta (r i) (r j)
  | Plus x y => den r x + den r y
  | Times x y => den r x * den r y
  | Over k x => sum (range k) (fun v => den (upd r k v) x)
  end.

Definition valid (r : env) : Prop := forall k, (r k < range k)%nat.

Lemma valid_upd r k v : valid r -> (v < range k)%nat -> valid (upd r k v).
Proof. intros H Hv x; unfold upd; destruct (Nat.eqb_spec x k); subst; auto. Qed.

(* -- sums over several indices -- *)

Fixpoint sums (bs : list nat) (r : env) (f : env -> R) : R :=
  match bs with nil => f r | k :: bs => sum (range k) (fun v => sums bs (upd r k v) f) end.

Lemma sums_ext bs : forall r f g, valid r -> (forall s, valid s -> f s = g s) -> sums bs r f = sums bs r g.
Proof. induction bs; simpl; intros r f g V H; auto using sum_ext, valid_upd. Qed.

Lemma sums_app b c : forall r f, sums (b ++ c) r f = sums b r (fun s => sums c s f).
Proof. induction b; simpl; intros; auto. apply sum_ext; auto. Qed.

Lemma sums_add bs : forall r f g, sums bs r (fun s => f s + g s) = sums bs r f + sums bs r g.
Proof. induction bs; simpl; intros; auto. rewrite <- sum_add; apply sum_ext; auto. Qed.

Lemma sums_scale bs c : forall r f, sums bs r (fun s => c * f s) = c * sums bs r f.
Proof. induction bs; simpl; intros; auto. rewrite <- sum_mul; apply sum_ext; auto. Qed.

Lemma sums_zero bs : forall r, sums bs r (fun _ => 0) = 0.
Proof.
  induction bs as [|k bs IH]; simpl; intros; auto.
  transitivity (sum (range k) (fun _ => 0)); [apply sum_ext; auto | apply sum_zero].
Qed.

Definition dep (X : list nat) (f : env -> R) : Prop :=
  forall r s, (forall k, In k X -> r k = s k) -> f r = f s.

Lemma sums_dep bs X f : dep X f -> dep X (fun r => sums bs r f).
Proof.
  intros H; induction bs; simpl; auto.
  intros r s E; apply sum_ext; intros v _; apply IHbs.
  intros k Hk; unfold upd; destruct (Nat.eqb k a); auto.
Qed.

Lemma sums_mul bs X f g : dep X f -> (forall k, In k bs -> ~ In k X) ->
  forall r, sums bs r (fun s => f s * g s) = f r * sums bs r g.
Proof.
  intros H; induction bs as [|k bs IH]; simpl; intros N r; auto.
  rewrite <- sum_mul; apply sum_ext; intros v _; rewrite IH by auto; f_equal.
  apply H; intros x Hx; apply upd_other; intros ->; apply (N k); auto.
Qed.

Lemma sums_perm b c f : Permutation b c -> NoDup b -> forall r, sums b r f = sums c r f.
Proof.
  induction 1; intros N r; simpl; auto.
  - apply sum_ext; intros; apply IHPermutation; now inversion N.
  - inversion N as [|? ? H1 H2]; subst; rewrite sum_swap.
    apply sum_ext; intros v _; apply sum_ext; intros w _.
    rewrite upd_swap; auto; intros ->; apply H1; now left.
  - rewrite IHPermutation1 by auto; apply IHPermutation2; eapply Permutation_NoDup; eauto.
Qed.

(* -- monomials -- *)

Record mono := Mono { co : Q; bs : list nat; ds : list (nat * nat); fs : list (nat * list nat) }.

Fixpoint deltas (l : list (nat * nat)) (r : env) : R :=
  match l with nil => 1 | (i, j) :: l => delta (r i) (r j) * deltas l r end.
Fixpoint atoms (l : list (nat * list nat)) (r : env) : R :=
  match l with nil => 1 | (a, i) :: l => atom a (map r i) * atoms l r end.

Definition body (m : mono) (r : env) : R := qr (co m) * (deltas (ds m) r * atoms (fs m) r).
Definition value (m : mono) (r : env) : R := sums (bs m) r (body m).
Fixpoint values (l : list mono) (r : env) : R := match l with nil => 0 | m :: l => value m r + values l r end.

Definition ids_ds (l : list (nat * nat)) : list nat := flat_map (fun d => [fst d; snd d]) l.
Definition ids_fs (l : list (nat * list nat)) : list nat := flat_map snd l.
Definition ids (m : mono) : list nat := ids_ds (ds m) ++ ids_fs (fs m).

Lemma deltas_dep l : dep (ids_ds l) (deltas l).
Proof.
  induction l as [|[i j] l IH]; intros r s E; simpl; auto.
  rewrite (E i), (E j), (IH r s); simpl; auto. intros k Hk; apply E; simpl; auto.
Qed.

Lemma atoms_dep l : dep (ids_fs l) (atoms l).
Proof.
  induction l as [|[a i] l IH]; intros r s E; simpl; auto.
  rewrite (map_ext_in r s), (IH r s); auto; intros k Hk; apply E; simpl; apply in_or_app; auto.
Qed.

Lemma body_dep m : dep (ids m) (body m).
Proof.
  intros r s E; unfold body; rewrite (deltas_dep _ r s), (atoms_dep _ r s); auto;
    intros k Hk; apply E; apply in_or_app; auto.
Qed.

Lemma deltas_app l k r : deltas (l ++ k) r = deltas l r * deltas k r.
Proof. induction l as [|[i j] l IH]; simpl; [ring | rewrite IH; ring]. Qed.

Lemma atoms_app l k r : atoms (l ++ k) r = atoms l r * atoms k r.
Proof. induction l as [|[i j] l IH]; simpl; [ring | rewrite IH; ring]. Qed.

Lemma values_app l k r : values (l ++ k) r = values l r + values k r.
Proof. induction l; simpl; [ring | rewrite IHl; ring]. Qed.

Definition apart (l k : list nat) : bool := forallb (fun x => negb (mem x k)) l.

Lemma apart_In l k : apart l k = true -> forall x, In x l -> ~ In x k.
Proof.
  unfold apart; rewrite forallb_forall; intros H x Hx; apply mem_not.
  specialize (H x Hx); now destruct (mem x k).
Qed.

Definition times (m n : mono) : option mono :=
  if apart (bs n) (ids m) && apart (bs m) (ids n)
  then Some (Mono (co m * co n) (bs m ++ bs n) (ds m ++ ds n) (fs m ++ fs n)) else None.

Lemma times_ok m n p r : valid r -> times m n = Some p -> value p r = value m r * value n r.
Proof.
  intros V; unfold times; destruct (apart (bs n) (ids m)) eqn:E1; [|discriminate].
  destruct (apart (bs m) (ids n)) eqn:E2; [|discriminate]; simpl; injection 1 as <-.
  unfold value at 1; simpl; rewrite sums_app.
  transitivity (sums (bs m) r (fun s => value n s * body m s)).
  - apply sums_ext; auto; intros s Vs.
    transitivity (sums (bs n) s (fun s => body m s * body n s)).
    + apply sums_ext; auto; intros; unfold body; simpl; rewrite qr_mul, deltas_app, atoms_app; ring.
    + rewrite (sums_mul _ (ids m)); [unfold value; ring | apply body_dep | now apply apart_In].
  - rewrite (sums_mul _ (ids n)); [unfold value; ring | apply sums_dep, body_dep | now apply apart_In].
Qed.

Fixpoint products (l k : list mono) : option (list mono) :=
  match l with
  | nil => Some nil
  | m :: l =>
      (fix row (k : list mono) (rest : option (list mono)) :=
         match k with
         | nil => rest
         | n :: k => match times m n, row k rest with Some p, Some q => Some (p :: q) | _, _ => None end
         end) k (products l k)
  end.

Lemma products_ok l k : forall p r, valid r -> products l k = Some p -> values p r = values l r * values k r.
Proof.
  induction l as [|m l IH]; simpl; intros p r V H; [injection H as <-; simpl; ring|].
  rewrite Rmult_plus_distr_r; destruct (products l k) as [q|]; [rewrite <- (IH q r V eq_refl); clear IH|].
  - generalize q p H; clear q p H; induction k as [|n k IHk]; intros q p H; simpl.
    + injection H as <-; ring.
    + destruct (times m n) eqn:T; [|discriminate].
      destruct ((fix row (k : list mono) (rest : option (list mono)) := _) k (Some q)) eqn:W; [|discriminate].
      injection H as <-; simpl; rewrite (IHk q l0 W), (times_ok _ _ _ _ V T); ring.
  - exfalso; clear IH; revert p H; induction k as [|n k IHk]; intros p H; [discriminate|].
    destruct (times m n); [|discriminate].
    destruct ((fix row (k : list mono) (rest : option (list mono)) := _) k None) eqn:W; [|discriminate].
    now apply (IHk l0).
Qed.

Fixpoint expand (t : term) : option (list mono) :=
  match t with
  | Const q => Some [Mono q [] [] []]
  | At a l => Some [Mono 1 [] [] [(a, l)]]
  | Eq i j => Some [Mono 1 [] [(i, j)] []]
  | Plus x y => match expand x, expand y with Some l, Some k => Some (l ++ k) | _, _ => None end
  | Times x y => match expand x, expand y with Some l, Some k => products l k | _, _ => None end
  | Over k x => option_map (map (fun m => Mono (co m) (k :: bs m) (ds m) (fs m))) (expand x)
  end.

Lemma qr_1 : qr 1 = 1.
Proof. reflexivity. Qed.

Lemma expand_ok t : forall l r, valid r -> expand t = Some l -> den r t = values l r.
Proof.
  induction t; simpl; intros u r V H.
  - injection H as <-; cbn; unfold body; simpl; ring.
  - injection H as <-; cbn; unfold body; simpl; rewrite qr_1; ring.
  - injection H as <-; cbn; unfold body; simpl; rewrite qr_1; ring.
  - destruct (expand t1), (expand t2); try discriminate; injection H as <-.
    rewrite values_app, (IHt1 l r), (IHt2 l0 r); auto.
  - destruct (expand t1), (expand t2); try discriminate.
    rewrite (products_ok l l0), (IHt1 l r), (IHt2 l0 r); auto.
  - destruct (expand t) as [l|]; [|discriminate]; injection H as <-.
    transitivity (sum (range k) (fun v => values l (upd r k v))).
    + apply sum_ext; intros v Hv; apply IHt; auto using valid_upd.
    + clear IHt; induction l; simpl; [apply sum_zero|].
      rewrite sum_add, IHl; reflexivity.
Qed.

(* -- a sum over a delta has one term -- *)

Definition ren (x y k : nat) : nat := if Nat.eqb k x then y else k.
Definition ren_d x y (d : nat * nat) := (ren x y (fst d), ren x y (snd d)).
Definition ren_f x y (f : nat * list nat) := (fst f, map (ren x y) (snd f)).

Lemma upd_ren x y s : upd s x (s y) = fun k => s (ren x y k).
Proof. extensionality k; unfold upd, ren; now destruct (Nat.eqb k x). Qed.

Lemma deltas_ren x y l s : deltas (map (ren_d x y) l) s = deltas l (upd s x (s y)).
Proof. rewrite upd_ren; induction l as [|[i j] l IH]; simpl; auto; now rewrite IH. Qed.

Lemma atoms_ren x y l s : atoms (map (ren_f x y) l) s = atoms l (upd s x (s y)).
Proof. rewrite upd_ren; induction l as [|[a i] l IH]; simpl; auto; now rewrite IH, map_map. Qed.

Fixpoint split (x : nat) (b : list nat) : option (list nat * list nat) :=
  match b with
  | nil => None
  | k :: b => if Nat.eqb x k then Some (nil, b)
              else match split x b with Some (l, r) => Some (k :: l, r) | None => None end
  end.

Lemma split_ok x b : forall l r, split x b = Some (l, r) -> b = l ++ x :: r.
Proof.
  induction b as [|k b IH]; simpl; intros l r H; [discriminate|].
  destruct (Nat.eqb_spec x k) as [->|]; [injection H as <- <-; auto|].
  destruct (split x b) as [[]|]; [|discriminate]; injection H as <- <-; simpl; now rewrite (IH l0 l1).
Qed.

Definition solve (x y : nat) (rest : list (nat * nat)) (m : mono) : option mono :=
  match split x (bs m) with
  | Some (l, r) =>
      if mem y r || mem x r || Nat.eqb x y || negb (Nat.eqb (type x) (type y)) then None
      else Some (Mono (co m) (l ++ r) (map (ren_d x y) rest) (map (ren_f x y) (fs m)))
  | None => None
  end.

Lemma sums_upd b x y g : ~ In x b -> ~ In y b ->
  forall r, sums b (upd r x (r y)) g = sums b r (fun s => g (upd s x (s y))).
Proof.
  induction b as [|k b IH]; simpl; intros Hx Hy r; auto.
  apply sum_ext; intros v _; rewrite upd_swap by (intros ->; auto).
  rewrite <- IH by auto; rewrite (upd_other _ _ _ y) by (intros ->; auto); reflexivity.
Qed.

Lemma sum_solved b x y g r : valid r -> x <> y -> type x = type y -> ~ In x b -> ~ In y b ->
  sums (x :: b) r (fun s => delta (s x) (s y) * g s) = sums b r (fun s => g (upd s x (s y))).
Proof.
  intros V N T Hx Hy; simpl.
  transitivity (sum (range x) (fun v => delta v (r y) * sums b (upd r x v) g)).
  - apply sum_ext; intros v _.
    rewrite (sums_mul b [x; y] (fun s => delta (s x) (s y))).
    + rewrite upd_same, upd_other by auto; reflexivity.
    + intros s u E; rewrite !E; simpl; auto.
    + intros k Hk [->|[->|[]]]; auto.
  - rewrite sum_delta; [apply sums_upd; auto|]. unfold range; rewrite T; apply V.
Qed.

Lemma solve_ok x y rest m n r : valid r -> solve x y rest m = Some n ->
  value n r = sums (bs m) r (fun s => delta (s x) (s y) * (qr (co m) * (deltas rest s * atoms (fs m) s))).
Proof.
  intros V; unfold solve; destruct (split x (bs m)) as [[b c]|] eqn:E; [|discriminate].
  apply split_ok in E; rewrite E; destruct (mem y c) eqn:E1; [discriminate|].
  destruct (mem x c) eqn:E2; [discriminate|]; destruct (Nat.eqb_spec x y) as [|N]; [discriminate|].
  destruct (Nat.eqb_spec (type x) (type y)) as [T|]; [|discriminate]; simpl; injection 1 as <-.
  unfold value; simpl; rewrite !sums_app; apply sums_ext; auto; intros s Vs.
  change (sum (range x) (fun v => sums c (upd s x v) ?f)) with (sums (x :: c) s f).
  rewrite sum_solved by auto using mem_not.
  apply sums_ext; auto; intros u Vu; unfold body; simpl; now rewrite deltas_ren, atoms_ren.
Qed.

Fixpoint without_delta (before after : list (nat * nat)) (m : mono) : option mono :=
  match after with
  | nil => None
  | (i, j) :: after =>
      let rest := before ++ after in
      if Nat.eqb i j then Some (Mono (co m) (bs m) rest (fs m))
      else match solve i j rest m with
           | Some n => Some n
           | None => match solve j i rest m with Some n => Some n | None => without_delta (before ++ [(i, j)]) after m end
           end
  end.

Lemma without_delta_ok m n r : valid r ->
  forall after before, ds m = before ++ after -> without_delta before after m = Some n -> value n r = value m r.
Proof.
  intros V; induction after as [|[i j] after IH]; simpl; intros before E H; [discriminate|].
  assert (B : forall s, body m s = delta (s i) (s j) * (qr (co m) * (deltas (before ++ after) s * atoms (fs m) s))).
  { intros s; unfold body; rewrite E, !deltas_app; simpl; ring. }
  destruct (Nat.eqb_spec i j) as [->|].
  - injection H as <-; unfold value; simpl; apply sums_ext; auto; intros s _.
    rewrite B, delta_refl; unfold body; simpl; ring.
  - destruct (solve i j (before ++ after) m) eqn:S1; [injection H as <-|].
    { rewrite (solve_ok _ _ _ _ _ _ V S1); apply sums_ext; auto. }
    destruct (solve j i (before ++ after) m) eqn:S2; [injection H as <-|].
    { rewrite (solve_ok _ _ _ _ _ _ V S2); apply sums_ext; auto; intros s _; now rewrite B, delta_sym. }
    apply (IH (before ++ [(i, j)])); auto; rewrite E, <- app_assoc; reflexivity.
Qed.

(* -- other factors of [i=j] need only one of both indices -- *)

Fixpoint with_delta (before after : list (nat * nat)) (m : mono) : option mono :=
  match after with
  | nil => None
  | (i, j) :: after =>
      let rest := before ++ after in
      let x := Nat.max i j in
      let y := Nat.min i j in
      if mem x (ids_ds rest ++ ids_fs (fs m)) && negb (Nat.eqb i j)
      then Some (Mono (co m) (bs m) ((i, j) :: map (ren_d x y) rest) (map (ren_f x y) (fs m)))
      else with_delta (before ++ [(i, j)]) after m
  end.

Lemma upd_equal s i j : s i = s j -> upd s (Nat.max i j) (s (Nat.min i j)) = s.
Proof.
  intros E; extensionality k; unfold upd; destruct (Nat.eqb_spec k (Nat.max i j)) as [->|]; auto.
  destruct (Nat.max_spec i j) as [[? ->]|[? ->]], (Nat.min_spec i j) as [[? ->]|[? ->]]; auto.
Qed.

Lemma with_delta_ok m n r : valid r ->
  forall after before, ds m = before ++ after -> with_delta before after m = Some n -> value n r = value m r.
Proof.
  intros V; induction after as [|[i j] after IH]; simpl; intros before E H; [discriminate|].
  destruct (mem (Nat.max i j) _ && _); [|apply (IH (before ++ [(i, j)])); auto; now rewrite E, <- app_assoc].
  injection H as <-; unfold value; simpl; apply sums_ext; auto; intros s _; unfold body; simpl.
  rewrite E, deltas_app; simpl; rewrite deltas_ren, atoms_ren, deltas_app.
  destruct (Nat.eq_dec (s i) (s j)) as [Q|Q]; [rewrite (upd_equal _ _ _ Q); ring | rewrite (delta_neq _ _ Q); ring].
Qed.

(* -- a sum over an index that does not occur is multiplied by its size -- *)

Fixpoint without_index (before after : list nat) (m : mono) : option mono :=
  match after with
  | nil => None
  | k :: after =>
      if mem k (ids m) || negb (Nat.ltb (type k) (length sizes)) then without_index (before ++ [k]) after m
      else Some (Mono (co m) (before ++ after) (ds m) ((type k, nil) :: fs m))
  end.

Lemma without_index_ok m n r : valid r ->
  forall after before, bs m = before ++ after -> without_index before after m = Some n -> value n r = value m r.
Proof.
  intros V; induction after as [|k after IH]; simpl; intros before E H; [discriminate|].
  destruct (mem k (ids m)) eqn:I; simpl in H; [apply (IH (before ++ [k])); auto; now rewrite E, <- app_assoc|].
  destruct (Nat.ltb_spec (type k) (length sizes)) as [L|]; simpl in H;
    [|apply (IH (before ++ [k])); auto; now rewrite E, <- app_assoc].
  injection H as <-; unfold value; simpl; rewrite E, !sums_app; apply sums_ext; auto; intros s Vs; simpl.
  transitivity (INR (range k) * sums after s (body m)).
  - rewrite <- sums_scale; apply sums_ext; auto; intros u _; unfold body; simpl.
    unfold atom, range, size; rewrite (nth_error_nth' sizes 0%nat L); ring.
  - rewrite <- sum_const; apply sum_ext; intros v _; apply (sums_dep after (ids m) _ (body_dep m)).
    intros x Hx; symmetry; apply upd_other; intros ->; now apply (mem_not _ _ I).
Qed.

(* -- products of two atoms by rules, such as n * / n = 1 -- *)

Record rule := Rule { first : nat; second : nat; args : list nat; result : list (Q * list nat) }.

Fixpoint product (l : list nat) (i : list nat) : R :=
  match l with nil => 1 | a :: l => atom a i * product l i end.
Fixpoint polynomial (l : list (Q * list nat)) (i : list nat) : R :=
  match l with nil => 0 | (q, a) :: l => qr q * product a i + polynomial l i end.

Definition holds (u : rule) : Prop :=
  forall i, Forall2 (fun v s => (v < size s)%nat) i (args u) ->
  atom (first u) i * atom (second u) i = polynomial (result u) i.

Fixpoint all_hold (l : list rule) : Prop := match l with nil => True | u :: l => holds u /\ all_hold l end.

Definition same_factor (a : nat) (i : list nat) (f : nat * list nat) : bool :=
  Nat.eqb a (fst f) && (if list_eq_dec Nat.eq_dec i (snd f) then true else false).

Fixpoint remove (a : nat) (i : list nat) (l : list (nat * list nat)) : option (list (nat * list nat)) :=
  match l with
  | nil => None
  | f :: l => if same_factor a i f then Some l else option_map (cons f) (remove a i l)
  end.

Lemma remove_ok a i l : forall k r, remove a i l = Some k -> atoms l r = atom a (map r i) * atoms k r.
Proof.
  induction l as [|[b j] l IH]; simpl; intros k r H; [discriminate|].
  unfold same_factor in H; simpl in H; destruct (Nat.eqb_spec a b) as [<-|]; simpl in H.
  - destruct (list_eq_dec Nat.eq_dec i j) as [<-|]; [injection H as <-; ring|].
    destruct (remove a i l); [|discriminate]; injection H as <-; simpl; rewrite (IH l0) by auto; ring.
  - destruct (remove a i l); [|discriminate]; injection H as <-; simpl; rewrite (IH l0) by auto; ring.
Qed.

Definition with_result (m : mono) (i : list nat) (rest : list (nat * list nat)) (l : list (Q * list nat)) : list mono :=
  map (fun t => Mono (co m * fst t) (bs m) (ds m) (map (fun a => (a, i)) (snd t) ++ rest)) l.

Fixpoint applied (u : rule) (before after : list (nat * list nat)) (m : mono) : option (list mono) :=
  match after with
  | nil => None
  | (a, i) :: after =>
      let next := applied u (before ++ [(a, i)]) after m in
      if Nat.eqb a (first u) && (if list_eq_dec Nat.eq_dec (map type i) (args u) then true else false)
      then match remove (second u) i (before ++ after) with
           | Some rest => Some (with_result m i rest (result u))
           | None => next
           end
      else next
  end.

Lemma atoms_args l i r : atoms (map (fun a => (a, i)) l) r = product l (map r i).
Proof. induction l; simpl; auto; now rewrite IHl. Qed.

Lemma with_result_ok m i rest l r : valid r -> values (with_result m i rest l) r =
  sums (bs m) r (fun s => qr (co m) * (deltas (ds m) s * (polynomial l (map s i) * atoms rest s))).
Proof.
  intros V; induction l as [|[q a] l IH]; simpl.
  - transitivity (sums (bs m) r (fun _ => 0)); [symmetry; apply sums_zero | apply sums_ext; auto; intros; simpl; ring].
  - rewrite IH; unfold value; simpl; rewrite <- sums_add; apply sums_ext; auto; intros s _.
    unfold body; simpl; rewrite qr_mul, atoms_app, atoms_args; ring.
Qed.

Lemma applied_ok u m p r : holds u -> valid r ->
  forall after before, fs m = before ++ after -> applied u before after m = Some p -> values p r = value m r.
Proof.
  intros U V; induction after as [|[a i] after IH]; simpl; intros before E H; [discriminate|].
  assert (N : applied u (before ++ [(a, i)]) after m = Some p -> values p r = value m r).
  { intros W; apply (IH (before ++ [(a, i)])); auto; now rewrite E, <- app_assoc. }
  destruct (Nat.eqb_spec a (first u)) as [->|]; simpl in H; auto.
  destruct (list_eq_dec Nat.eq_dec (map type i) (args u)) as [T|]; auto.
  destruct (remove (second u) i (before ++ after)) as [rest|] eqn:W; auto; injection H as <-.
  rewrite with_result_ok by auto; apply sums_ext; auto; intros s Vs; unfold body; rewrite E, atoms_app; simpl.
  assert (X := remove_ok _ _ _ _ s W); rewrite atoms_app in X.
  rewrite <- (U (map s i)).
  - transitivity (qr (co m) * (deltas (ds m) s * (atom (first u) (map s i) * (atom (second u) (map s i) * atoms rest s)))).
    { ring. } { rewrite <- X; ring. }
  - rewrite <- T; clear - Vs; induction i; simpl; constructor; auto; apply Vs.
Qed.

(* -- normal forms -- *)

Variable rules : list rule.

Fixpoint by_rules (l : list rule) (m : mono) : option (list mono) :=
  match l with
  | nil => None
  | u :: l => match applied u nil (fs m) m with Some p => Some p | None => by_rules l m end
  end.

Definition simplified (m : mono) : option (list mono) :=
  match without_delta nil (ds m) m with
  | Some n => Some [n]
  | None =>
      match with_delta nil (ds m) m with
      | Some n => Some [n]
      | None => match without_index nil (bs m) m with Some n => Some [n] | None => by_rules rules m end
      end
  end.

Lemma by_rules_ok m p r : valid r -> forall l, all_hold l -> by_rules l m = Some p -> values p r = value m r.
Proof.
  intros V; induction l as [|u l IH]; simpl; intros W H; [discriminate|]; destruct W as [U W].
  destruct (applied u nil (fs m) m) eqn:X; auto; injection H as <-.
  apply (applied_ok u m l0 r U V (fs m) nil); auto.
Qed.

Lemma simplified_ok m p r : all_hold rules -> valid r -> simplified m = Some p -> values p r = value m r.
Proof.
  intros W V; unfold simplified; destruct (without_delta nil (ds m) m) eqn:X; [injection 1 as <-|].
  { simpl; rewrite (without_delta_ok m m0 r V (ds m) nil); auto; ring. }
  destruct (with_delta nil (ds m) m) eqn:W'; [injection 1 as <-|].
  { simpl; rewrite (with_delta_ok m m0 r V (ds m) nil); auto; ring. }
  destruct (without_index nil (bs m) m) eqn:Y; [injection 1 as <-|].
  { simpl; rewrite (without_index_ok m m0 r V (bs m) nil); auto; ring. }
  apply by_rules_ok; auto.
Qed.

Fixpoint normal (fuel : nat) (m : mono) : list mono :=
  match fuel with
  | O => [m]
  | S fuel => match simplified m with Some l => flat_map (normal fuel) l | None => [m] end
  end.

Lemma normal_ok r : all_hold rules -> valid r -> forall fuel m, values (normal fuel m) r = value m r.
Proof.
  intros W V; induction fuel; intros m; simpl; [ring|].
  destruct (simplified m) as [l|] eqn:E; [|simpl; ring].
  rewrite <- (simplified_ok m l r W V E); clear E; induction l; simpl; auto.
  rewrite values_app, IHl, IHfuel; ring.
Qed.

(* -- monomials that are equal, whatever their bound indices are called, and in whatever order -- *)

Fixpoint related (sub : list (nat * nat)) (x y : nat) : bool :=
  match sub with
  | nil => Nat.eqb x y
  | (k, p) :: sub => if Nat.eqb x k then Nat.eqb y p else if Nat.eqb y p then false else related sub x y
  end.

Definition agree (sub : list (nat * nat)) (r s : env) : Prop := forall x y, related sub x y = true -> r x = s y.

Lemma agree_upd sub r s k p v : agree sub r s -> agree ((k, p) :: sub) (upd r k v) (upd s p v).
Proof.
  intros H x y; simpl; unfold upd; destruct (Nat.eqb x k); [now intros ->|].
  destruct (Nat.eqb y p); [discriminate | apply H].
Qed.

Fixpoint zipped (sub : list (nat * nat)) (b c : list nat) : option (list (nat * nat)) :=
  match b, c with
  | nil, nil => Some sub
  | k :: b, p :: c => if Nat.eqb (type k) (type p) then zipped ((k, p) :: sub) b c else None
  | _, _ => None
  end.

Lemma sums_related f g full b : forall c sub r s, zipped sub b c = Some full -> agree sub r s ->
  (forall u v, agree full u v -> f u = g v) -> sums b r f = sums c s g.
Proof.
  induction b as [|k b IH]; intros [|p c] sub r s; simpl; try discriminate.
  - injection 1 as <-; auto.
  - destruct (Nat.eqb_spec (type k) (type p)) as [T|]; [|discriminate]; intros Hz Ha Hf.
    unfold range; rewrite T; apply sum_ext; intros v _; eapply IH; eauto using agree_upd.
Qed.

Fixpoint related_lists (sub : list (nat * nat)) (l k : list nat) : bool :=
  match l, k with
  | nil, nil => true
  | x :: l, y :: k => related sub x y && related_lists sub l k
  | _, _ => false
  end.

Lemma related_lists_ok sub r s l : forall k, agree sub r s -> related_lists sub l k = true -> map r l = map s k.
Proof.
  induction l as [|x l IH]; intros [|y k] H; simpl; try discriminate; auto.
  destruct (related sub x y) eqn:E; [|discriminate]; simpl; intros W; rewrite (H x y E), (IH k H W); auto.
Qed.

Section Multisets.
  Variable T : Type.
  Variable is_same : T -> T -> bool.
  Fixpoint taken (x : T) (l : list T) : option (list T) :=
    match l with nil => None | y :: l => if is_same x y then Some l else option_map (cons y) (taken x l) end.
  Fixpoint all_taken (l k : list T) : bool :=
    match l with
    | nil => match k with nil => true | _ => false end
    | x :: l => match taken x k with Some k => all_taken l k | None => false end
    end.
  Variable f g : T -> R.
  Hypothesis f_g : forall x y, is_same x y = true -> f x = g y.
  Fixpoint multiplied (h : T -> R) (l : list T) : R := match l with nil => 1 | x :: l => h x * multiplied h l end.
  Lemma taken_ok x l : forall k, taken x l = Some k -> multiplied g l = f x * multiplied g k.
  Proof.
    induction l as [|y l IH]; simpl; intros k H; [discriminate|].
    destruct (is_same x y) eqn:E; [injection H as <-; now rewrite (f_g x y E)|].
    destruct (taken x l); [|discriminate]; injection H as <-; simpl; rewrite (IH l0) by auto; ring.
  Qed.
  Lemma all_taken_ok l : forall k, all_taken l k = true -> multiplied f l = multiplied g k.
  Proof.
    induction l as [|x l IH]; simpl; intros k H; [now destruct k|].
    destruct (taken x k) eqn:E; [|discriminate]; rewrite (taken_ok _ _ _ E), (IH _ H); auto.
  Qed.
End Multisets.

Definition same_d (sub : list (nat * nat)) (d e : nat * nat) : bool :=
  (related sub (fst d) (fst e) && related sub (snd d) (snd e)) || (related sub (fst d) (snd e) && related sub (snd d) (fst e)).
Definition same_f (sub : list (nat * nat)) (f g : nat * list nat) : bool :=
  Nat.eqb (fst f) (fst g) && related_lists sub (snd f) (snd g).

Definition same_by (m n : mono) (p : list nat) : bool :=
  match zipped nil (bs m) p with
  | Some sub => all_taken _ (same_d sub) (ds m) (ds n) && all_taken _ (same_f sub) (fs m) (fs n)
  | None => false
  end.

Definition unit (m : mono) (r : env) : R := sums (bs m) r (fun s => deltas (ds m) s * atoms (fs m) s).

Lemma value_unit m r : value m r = qr (co m) * unit m r.
Proof. unfold value, unit, body; now rewrite sums_scale. Qed.

Lemma deltas_multiplied l r : deltas l r = multiplied _ (fun d => delta (r (fst d)) (r (snd d))) l.
Proof. induction l as [|[i j] l IH]; simpl; auto; now rewrite IH. Qed.

Lemma atoms_multiplied l r : atoms l r = multiplied _ (fun f => atom (fst f) (map r (snd f))) l.
Proof. induction l as [|[i j] l IH]; simpl; auto; now rewrite IH. Qed.

Lemma same_by_ok m n p r : Permutation (bs n) p -> NoDup (bs n) -> same_by m n p = true -> unit m r = unit n r.
Proof.
  intros HP HN; unfold same_by, unit; destruct (zipped nil (bs m) p) as [sub|] eqn:W; [|discriminate].
  intros H; apply andb_prop in H; destruct H as [H1 H2].
  rewrite (sums_perm _ _ _ HP HN); eapply sums_related; [exact W | |].
  - intros x y E; apply Nat.eqb_eq in E; now subst.
  - intros u v E; rewrite !deltas_multiplied, !atoms_multiplied; f_equal; eapply all_taken_ok; eauto; intros d e S.
    + unfold same_d in S; apply orb_prop in S; destruct S as [S|S]; apply andb_prop in S; destruct S as [S1 S2];
        rewrite (E _ _ S1), (E _ _ S2); auto using delta_sym.
    + unfold same_f in S; apply andb_prop in S; destruct S as [S1 S2]; apply Nat.eqb_eq in S1.
      now rewrite S1, (related_lists_ok sub u v _ _ E S2).
Qed.

Fixpoint inserts (x : nat) (l : list nat) : list (list nat) :=
  match l with nil => [[x]] | y :: k => (x :: l) :: map (cons y) (inserts x k) end.
Fixpoint orders (l : list nat) : list (list nat) :=
  match l with nil => [[]] | x :: l => flat_map (inserts x) (orders l) end.

Lemma inserts_ok x l : forall p, In p (inserts x l) -> Permutation (x :: l) p.
Proof.
  induction l as [|y l IH]; simpl; intros p H; [destruct H as [<-|[]]; auto|].
  destruct H as [<-|H]; auto; apply in_map_iff in H; destruct H as (q & <- & H).
  rewrite perm_swap; auto.
Qed.

Lemma orders_ok l : forall p, In p (orders l) -> Permutation l p.
Proof.
  induction l as [|x l IH]; simpl; intros p H; [destruct H as [<-|[]]; auto|].
  apply in_flat_map in H; destruct H as (q & Hq & H); apply inserts_ok in H.
  rewrite <- H; auto.
Qed.

Fixpoint distinct (l : list nat) : bool := match l with nil => true | x :: l => negb (mem x l) && distinct l end.

Lemma distinct_ok l : distinct l = true -> NoDup l.
Proof.
  induction l; simpl; intros H; constructor; apply andb_prop in H; destruct H as [H1 H2]; auto.
  apply mem_not; now destruct (mem a l).
Qed.

Definition same (m n : mono) : bool :=
  Nat.eqb (length (bs m)) (length (bs n)) && Nat.eqb (length (fs m)) (length (fs n)) && distinct (bs n)
  && existsb (same_by m n) (orders (bs n)).

Lemma same_ok m n r : same m n = true -> unit m r = unit n r.
Proof.
  unfold same; intros H; apply andb_prop in H; destruct H as [H X]; apply andb_prop in H; destruct H as [_ H].
  apply existsb_exists in X; destruct X as (p & Hp & E).
  apply (same_by_ok m n p); auto using orders_ok, distinct_ok.
Qed.

Definition added (p q : Q) : Q := Qred (p + q).
Arguments added : simpl never.

Lemma added_ok p q : qr (added p q) = qr p + qr q.
Proof. rewrite <- qr_add, !qr_Q2R; apply Qeq_eqR, Qred_correct. Qed.

Fixpoint collected (m : mono) (l : list mono) : list mono :=
  match l with
  | nil => [m]
  | n :: l => if same m n then Mono (added (co m) (co n)) (bs n) (ds n) (fs n) :: l else n :: collected m l
  end.

Lemma collected_ok m r : forall l, values (collected m l) r = value m r + values l r.
Proof.
  induction l as [|n l IH]; simpl; auto; destruct (same m n) eqn:E; simpl; [|rewrite IH; ring].
  rewrite !value_unit; simpl; rewrite (same_ok _ _ r E).
  change (unit {| co := _; bs := bs n; ds := ds n; fs := fs n |} r) with (unit n r).
  rewrite added_ok; ring.
Qed.

Definition negated (m : mono) : mono := Mono (- co m) (bs m) (ds m) (fs m).

Lemma negated_ok m r : value (negated m) r = - value m r.
Proof.
  rewrite !value_unit; simpl; change (unit (negated m) r) with (unit m r); rewrite !qr_Q2R, Q2R_opp; ring.
Qed.

Definition collect (l : list mono) : list mono := fold_right collected nil l.

Lemma collect_ok r l : values (collect l) r = values l r.
Proof. induction l; simpl; auto; now rewrite collected_ok, IHl. Qed.

Definition FUEL := 400%nat.
Definition forms (l : list mono) : list mono := flat_map (normal FUEL) l.

Lemma forms_ok r : all_hold rules -> valid r -> forall l, values (forms l) r = values l r.
Proof.
  intros W V; induction l as [|m l IH]; [reflexivity|].
  change (forms (m :: l)) with (normal FUEL m ++ forms l); rewrite values_app, IH, normal_ok; auto.
Qed.

Definition check (t u : term) : bool :=
  match expand t, expand u with
  | Some l, Some k => forallb (fun m => Qeq_bool (co m) 0) (collect (forms l ++ map negated (forms k)))
  | _, _ => false
  end.

Theorem check_ok t u r : all_hold rules -> valid r -> check t u = true -> den r t = den r u.
Proof.
  intros W V; unfold check; destruct (expand t) as [l|] eqn:L; [|discriminate].
  destruct (expand u) as [k|] eqn:K; [|discriminate]; intros H.
  rewrite (expand_ok t l r V L), (expand_ok u k r V K).
  assert (values (collect (forms l ++ map negated (forms k))) r = 0).
  { revert H; generalize (collect (forms l ++ map negated (forms k))); clear.
    induction l as [|m l IH]; simpl; auto; intros H; apply andb_prop in H; destruct H as [H1 H2].
    rewrite value_unit, (qr_zero _ H1), IH; auto; ring. }
  rewrite collect_ok, values_app, forms_ok in H0 by auto.
  assert (E : values (map negated (forms k)) r = - values (forms k) r).
  { clear; induction (forms k); simpl; [ring | rewrite negated_ok, IHl; ring]. }
  rewrite E, forms_ok in H0 by auto; lra.
Qed.

(* the numbers of free indices come first *)
Lemma bounded free : forall tys k, List.Forall2 (fun v s => (v < size s)%nat) free (firstn (length free) tys) ->
  (k < length free)%nat -> (nth k free 0 < size (nth k tys 0))%nat.
Proof.
  induction free as [|v free IH]; intros tys k F L; simpl in L; [lia|].
  destruct tys as [|s tys]; simpl in F; inversion F; subst; destruct k; simpl; auto; apply IH; auto; lia.
Qed.

Lemma valid_free (free : list nat) :
  forallb (fun s => Nat.ltb s (length sizes)) (0%nat :: types) = true -> List.Forall (fun n => (0 < n)%nat) sizes ->
  Forall2 (fun v s => (v < size s)%nat) free (firstn (length free) types) -> valid (fun k => nth k free 0%nat).
Proof.
  intros T N F k; assert (P0 : (0 < range k)%nat).
  { unfold range, size; rewrite List.Forall_nth in N; apply N; unfold type.
    rewrite forallb_forall in T; apply Nat.ltb_lt, T.
    destruct (nth_in_or_default k types 0%nat) as [I| ->]; simpl; auto. }
  destruct (Nat.lt_ge_cases k (length free)) as [L|L]; [|rewrite nth_overflow; auto].
  unfold range, type; now apply bounded.
Qed.

End Normal.

(* -- derivatives -- *)

Definition put1 (x : nat -> R) (a : nat) (t : R) : nat -> R := fun i => if Nat.eqb i a then t else x i.
Definition put2 (x : nat -> nat -> R) (a b : nat) (t : R) : nat -> nat -> R :=
  fun i j => if Nat.eqb i a && Nat.eqb j b then t else x i j.
Definition put3 (x : nat -> nat -> nat -> R) (a b c : nat) (t : R) : nat -> nat -> nat -> R :=
  fun i j k => if Nat.eqb i a && Nat.eqb j b && Nat.eqb k c then t else x i j k.
Definition put4 (x : nat -> nat -> nat -> nat -> R) (a b c d : nat) (t : R) : nat -> nat -> nat -> nat -> R :=
  fun i j k l => if Nat.eqb i a && Nat.eqb j b && Nat.eqb k c && Nat.eqb l d then t else x i j k l.

Ltac puts := unfold put1, put2, put3, put4; repeat (match goal with |- context [Nat.eqb ?i ?a] => destruct (Nat.eqb_spec i a) end; simpl); subst; try reflexivity; try congruence.

Lemma put1_same x a : put1 x a (x a) = x.
Proof. extensionality i; puts. Qed.
Lemma put2_same x a b : put2 x a b (x a b) = x.
Proof. extensionality i; extensionality j; puts. Qed.
Lemma put3_same x a b c : put3 x a b c (x a b c) = x.
Proof. extensionality i; extensionality j; extensionality k; puts. Qed.
Lemma put4_same x a b c d : put4 x a b c d (x a b c d) = x.
Proof. extensionality i; extensionality j; extensionality k; extensionality l; puts. Qed.

Lemma d_const (c x : R) : is_derive (fun _ => c) x 0.
Proof. apply (is_derive_const c x). Qed.

Lemma d_id (x : R) : is_derive (fun t : R => t) x 1.
Proof. apply (is_derive_id x). Qed.

Ltac entry := unfold put1, put2, put3, put4, delta;
  repeat (match goal with |- context [Nat.eqb ?i ?a] => destruct (Nat.eqb i a) end; simpl);
  match goal with
  | |- is_derive (fun t => t) ?x ?d => replace d with 1 by ring; apply d_id
  | |- is_derive _ ?x ?d => replace d with 0 by ring; apply d_const
  end.

Lemma d_put1 x a i y : is_derive (fun t => put1 x a t i) y (delta i a).
Proof. entry. Qed.
Lemma d_put2 x a b i j y : is_derive (fun t => put2 x a b t i j) y (delta i a * delta j b).
Proof. entry. Qed.
Lemma d_put3 x a b c i j k y : is_derive (fun t => put3 x a b c t i j k) y (delta i a * delta j b * delta k c).
Proof. entry. Qed.
Lemma d_put4 x a b c d i j k l y :
  is_derive (fun t => put4 x a b c d t i j k l) y (delta i a * delta j b * delta k c * delta l d).
Proof. entry. Qed.

Lemma d_plus (f g : R -> R) x f' g' : is_derive f x f' -> is_derive g x g' -> is_derive (fun t => f t + g t) x (f' + g').
Proof. apply (is_derive_plus f g). Qed.

Lemma d_plus_left (f : R -> R) c x f' : is_derive f x f' -> is_derive (fun t => f t + c) x f'.
Proof. intros H; replace f' with (f' + 0) by ring; apply (d_plus f (fun _ => c)); auto using d_const. Qed.

Lemma d_plus_right (f : R -> R) c x f' : is_derive f x f' -> is_derive (fun t => c + f t) x f'.
Proof. intros H; replace f' with (0 + f') by ring; apply (d_plus (fun _ => c) f); auto using d_const. Qed.

Lemma d_times (f g : R -> R) x f' g' u v : is_derive f x f' -> is_derive g x g' -> f x = u -> g x = v ->
  is_derive (fun t => f t * g t) x (f' * v + u * g').
Proof. intros F G <- <-; apply (is_derive_mult f g); auto; intros; apply Rmult_comm. Qed.

Lemma d_times_left (f : R -> R) c x f' : is_derive f x f' -> is_derive (fun t => f t * c) x (f' * c).
Proof.
  intros H; replace (f' * c) with (f' * c + f x * 0) by ring.
  apply (d_times f (fun _ => c)); auto using d_const.
Qed.

Lemma d_times_right (f : R -> R) c x f' : is_derive f x f' -> is_derive (fun t => c * f t) x (c * f').
Proof.
  intros H; replace (c * f') with (0 * f x + c * f') by ring.
  apply (d_times (fun _ => c) f); auto using d_const.
Qed.

Lemma d_sum n (f : R -> nat -> R) x d : (forall i, (i < n)%nat -> is_derive (fun t => f t i) x (d i)) ->
  is_derive (fun t => sum n (fun i => f t i)) x (sum n (fun i => d i)).
Proof. induction n; simpl; intros H; [apply d_const | apply (d_plus _ (fun t => f t n)); auto]. Qed.

Lemma d_comp (f g : R -> R) x f' d u : is_derive f x f' -> f x = u -> is_derive g u d -> is_derive (fun t => g (f t)) x (d * f').
Proof. intros F <- G; rewrite Rmult_comm; apply (is_derive_comp g f); auto. Qed.

Lemma d_exp (f : R -> R) x f' e : is_derive f x f' -> exp (f x) = e -> is_derive (fun t => exp (f t)) x (e * f').
Proof. intros F <-; apply (d_comp f exp x f' _ (f x)); auto; apply is_derive_exp. Qed.

Lemma d_inv (f : R -> R) x f' e : is_derive f x f' -> / f x = e -> f x <> 0 -> is_derive (fun t => / f t) x (-1 * (e * e) * f').
Proof.
  intros F <- N; replace (-1 * (/ f x * / f x) * f') with (- f' / f x ^ 2) by (field; auto).
  apply is_derive_inv; auto.
Qed.

Lemma d_ln (f : R -> R) x f' e : is_derive f x f' -> / f x = e -> 0 < f x -> is_derive (fun t => ln (f t)) x (e * f').
Proof. intros F <- N; apply (d_comp f ln x f' _ (f x)); auto; apply is_derive_Reals, derivable_pt_lim_ln; auto. Qed.

Lemma d_sqrt (f : R -> R) x f' e : is_derive f x f' -> / sqrt (f x) = e -> 0 < f x ->
  is_derive (fun t => sqrt (f t)) x (1 * / 2 * e * f').
Proof.
  intros F <- N; apply (d_comp f sqrt x f' _ (f x)); auto; apply is_derive_Reals.
  replace (1 * / 2 * / sqrt (f x)) with (/ (2 * sqrt (f x))); [apply derivable_pt_lim_sqrt; auto|].
  field; apply Rgt_not_eq, sqrt_lt_R0; auto.
Qed.

(* [x >= 0], which is constant near x if x is not 0 *)
Definition step (x : R) : R := if Rle_dec 0 x then 1 else 0.

Lemma step_square x : step x * step x = step x.
Proof. unfold step; destruct (Rle_dec 0 x); ring. Qed.

Lemma d_step (f : R -> R) x f' : is_derive f x f' -> f x <> 0 -> is_derive (fun t => step (f t)) x 0.
Proof.
  intros F N; assert (Cf : continuous f x) by (apply (ex_derive_continuous f); now exists f').
  apply (is_derive_ext_loc (fun _ => step (f x))); [|apply d_const].
  destruct (Rtotal_order (f x) 0) as [L|[E|G]]; [|contradiction|].
  - apply (Cf (fun y => step (f x) = step y)); exists (mkposreal (- f x) ltac:(lra)).
    intros y By; unfold ball in By; simpl in By; unfold AbsRing_ball, abs, minus, plus, opp in By; simpl in By.
    apply Rabs_def2 in By; unfold step; destruct (Rle_dec 0 (f x)), (Rle_dec 0 y); lra.
  - apply (Cf (fun y => step (f x) = step y)); exists (mkposreal (f x) G).
    intros y By; unfold ball in By; simpl in By; unfold AbsRing_ball, abs, minus, plus, opp in By; simpl in By.
    apply Rabs_def2 in By; unfold step; destruct (Rle_dec 0 (f x)), (Rle_dec 0 y); lra.
Qed.

Lemma is_derive_equal (f : R -> R) x d e : is_derive f x d -> d = e -> is_derive f x e.
Proof. now intros H <-. Qed.

(* the greatest of f 0, ..., f (n - 1) *)
Fixpoint maximum (n : nat) (f : nat -> R) : R :=
  match n with O => 0 | S O => f O | S m => Rmax (maximum m f) (f m) end.

Lemma d_function (g g' : R -> R) (G : forall x, is_derive g x (g' x)) (f : R -> R) x f' e :
  is_derive f x f' -> g' (f x) = e -> is_derive (fun t => g (f t)) x (e * f').
Proof. intros F <-; apply (d_comp f g x f' _ (f x)); auto. Qed.

(* -- tactics of certificates -- *)

Ltac here := cbv beta; rewrite ?put1_same, ?put2_same, ?put3_same, ?put4_same; reflexivity.

(* x = y, where y has other names for parts of x, by lemmas about these *)
Ltac renamed lemma :=
  match goal with
  | |- ?x = ?x => reflexivity
  | |- sum _ _ = sum _ _ => apply sum_ext; intros; renamed lemma
  | |- _ + _ = _ + _ => apply f_equal2; renamed lemma
  | |- _ * _ = _ * _ => apply f_equal2; renamed lemma
  | |- _ => lemma
  end.

Ltac rule_goal :=
  cbv [holds atom polynomial product first second result args nth_error nth length Nat.sub map qr Qden Qnum].

Ltac exponents :=
  rewrite <- exp_plus; match goal with |- exp ?u = _ => replace u with 0 by ring end; rewrite exp_0; ring.

Ltac factors :=
  match goal with
  | |- ?x = ?x => reflexivity
  | |- _ * _ = _ * _ => apply f_equal2; factors
  | |- exp _ = exp _ => apply (f_equal exp); ring
  | |- / _ = / _ => apply (f_equal Rinv); factors
  | |- _ => field
  end.

Ltac bounds := repeat match goal with H : List.Forall2 _ _ _ |- _ => inversion H; clear H; subst end.

Ltac normal sizes types others rules free t u proofs :=
  change (den sizes types others (fun k => nth k free 0%nat) t = den sizes types others (fun k => nth k free 0%nat) u);
  apply (check_ok sizes types others rules);
  [ proofs
  | apply valid_free; [vm_compute; reflexivity | repeat constructor; assumption | cbn; repeat constructor; assumption]
  | vm_compute; reflexivity ].

Lemma square_at_least_zero x : 0 <= x * x.
Proof. apply Rle_0_sqr. Qed.

Ltac positive :=
  cbv beta;
  match goal with
  | |- _ <> 0 => apply Rgt_not_eq; red; positive
  | |- 0 < sum _ _ => apply sum_pos; [assumption | intros; positive]
  | |- 0 < exp _ => apply exp_pos
  | |- 0 < PI => apply PI_RGT_0
  | |- 0 < / _ => apply Rinv_0_lt_compat; positive
  | |- 0 < sqrt _ => apply sqrt_lt_R0; positive
  | |- 0 < INR _ => apply lt_0_INR; assumption
  | |- 0 < IZR _ => lra
  | |- 0 < _ * _ => apply Rmult_lt_0_compat; positive
  | |- 0 < _ + _ => first [apply Rplus_lt_le_0_compat; positive | apply Rplus_le_lt_0_compat; positive]
  | |- 0 <= IZR _ => lra
  | |- 0 <= sum _ _ => apply sum_nonneg; intros; positive
  | |- 0 <= ?x * ?x => apply square_at_least_zero
  | |- 0 <= _ * _ => first [apply Rmult_le_pos; positive | left; positive]
  | |- 0 <= _ + _ => first [apply Rplus_le_le_0_compat; positive | left; positive]
  | |- 0 <= delta _ _ => unfold delta; destruct (Nat.eqb _ _); lra
  | |- 0 <= step _ => unfold step; destruct (Rle_dec 0 _); lra
  | |- 0 <= sqrt _ => apply sqrt_pos
  | |- 0 <= _ => left; positive
  | |- _ => solve [eauto]
  end.

Lemma maximum_ext n f g : (forall k, (k < n)%nat -> f k = g k) -> maximum n f = maximum n g.
Proof.
  induction n as [|n IH]; intros H; [reflexivity|]; destruct n as [|n]; [apply H; lia|].
  change (Rmax (maximum (S n) f) (f (S n)) = Rmax (maximum (S n) g) (g (S n))).
  rewrite H by lia; f_equal; apply IH; intros; apply H; lia.
Qed.

Lemma maximum_scale c n f : 0 <= c -> maximum n (fun k => c * f k) = c * maximum n f.
Proof.
  intros H; induction n as [|n IH]; [simpl; ring|]; destruct n as [|n]; [reflexivity|].
  change (Rmax (maximum (S n) (fun k => c * f k)) (c * f (S n)) = c * Rmax (maximum (S n) f) (f (S n))).
  now rewrite IH, RmaxRmult.
Qed.
